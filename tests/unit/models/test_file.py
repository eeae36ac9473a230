"""``file:PATH``."""

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.models.base import End, Proposal
from ptxbench.models.file import FileModel, file_model_name
from ptxbench.records import Candidate
from tests.unit.factories import suite_case


def write(path: Path, text: str = "// kernel\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_proposes_the_bytes_of_the_file_once(tmp_path):
    (tmp_path / "wide.cu").write_bytes("// ü\r\nint x;\n".encode())
    model = FileModel(tmp_path / "wide.cu")
    first = model.propose(suite_case(), 0, 0, 0, ())
    assert isinstance(first, Proposal)
    assert first.candidate == Candidate(source="// ü\r\nint x;\n")
    assert first.origin == "file"
    assert model.known_source(suite_case(), 0, 0, 0) == first.candidate.sha256
    assert isinstance(model.propose(suite_case(), 0, 0, 1, ()), End)
    assert model.turns == 1
    assert model.min_speedup(suite_case()) is None


def test_judges_the_same_bytes_all_along(tmp_path):
    path = write(tmp_path / "a.cu", "first")
    model = FileModel(path)
    path.write_text("second")
    proposal = model.propose(suite_case(), 0, 0, 0, ())
    assert isinstance(proposal, Proposal)
    assert proposal.candidate is not None
    assert proposal.candidate.source == "first"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("decoys/kernel.cu", "file.decoys"),
        ("decoys/one wgmma.cu", "file.one_wgmma"),
        ("a/b-2.cu", "file.b-2"),
    ],
)
def test_names_itself_by_what_tells_files_apart(path, name):
    assert file_model_name(Path(path)) == name


def test_names_in_other_scripts_differ_and_stay():
    names = [file_model_name(Path(f"{stem}.cu")) for stem in ("日本", "中国", "日本1", "中国1", "---", "___")]
    assert len(set(names)) == len(names)
    assert names[0] == "file.unnamed-cf2abf0c"
    assert names[2].startswith("file.1-")
    assert file_model_name(Path("日本/kernel.cu")) == names[0]


def test_long_names_differ():
    assert file_model_name(Path(f"{'a' * 80}1.cu")) != file_model_name(Path(f"{'a' * 80}2.cu"))


def test_refuses_what_it_cannot_read(tmp_path):
    with pytest.raises(InputError, match=r"no such file"):
        FileModel(tmp_path / "absent.cu")
    with pytest.raises(InputError, match=r"ending in \.cu, found 'kernel\.ptx'"):
        FileModel(write(tmp_path / "kernel.ptx"))
    (tmp_path / "binary.cu").write_bytes(b"int \xff;")
    with pytest.raises(InputError, match=r"UTF-8 text, found byte 4"):
        FileModel(tmp_path / "binary.cu")
    (tmp_path / "folder.cu").mkdir()
    with pytest.raises(InputError, match=r"cannot be read"):
        FileModel(tmp_path / "folder.cu")
