from pathlib import Path

import pytest

from ptxbench.adapt.corpus_file import read_corpus
from ptxbench.adapt.model import Rationale, write_lines
from ptxbench.errors import InputError
from tests.support.fixit_parts import make_failure, make_rationale


def rationale(number: int) -> Rationale:
    return make_rationale(make_failure(f"// failed {number}\n", number), f"// repaired {number}\n", f"note {number}")


def test_an_entry_is_what_a_rationale_says(tmp_path: Path):
    found = rationale(1)
    write_lines([found], tmp_path / "rationales.jsonl")
    (entry,) = read_corpus([tmp_path]).entries
    origin = found.origin
    assert entry.id == found.id
    assert (entry.definition, entry.arch) == (origin.key.case, "h100")
    assert (entry.run, entry.run_created_at) == (origin.run, origin.run_created_at)
    assert (entry.failed, entry.note, entry.kernel) == ("// failed 1\n", "note 1", "// repaired 1\n")


def test_files_and_folders_together(tmp_path: Path):
    write_lines([rationale(1)], tmp_path / "a" / "rationales.jsonl")
    write_lines([rationale(2)], tmp_path / "b.jsonl")
    assert len(read_corpus([tmp_path / "a", tmp_path / "b.jsonl"]).entries) == 2


def test_what_is_none_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"expected a file of rationales or a folder with rationales\.jsonl"):
        read_corpus([tmp_path])
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"x\.jsonl:1: expected one Rationale as JSON"):
        read_corpus([tmp_path / "x.jsonl"])
