import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.profiler.replay import (
    EVIDENCE_SUFFIX,
    ReplayProfiler,
    evidence_key,
    find_evidence,
    load_evidence,
    save_evidence,
)
from ptxbench.records import Build, Evidence, ToolStatus
from ptxbench.toolchain import Built
from tests.unit.factories import digest, make_build, make_evidence, make_safety, suite_case

Store = Callable[..., Evidence]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Writes a record of ``make_build()`` and changes to it."""

    def write(name: str = "gemm", **changes: Any) -> Evidence:
        evidence = make_evidence(**changes)
        save_evidence(evidence, tmp_path / f"{name}{EVIDENCE_SUFFIX}")
        return evidence

    return write


def ask(root: Path, build: Build | None = None, case: Any = None) -> Evidence | None:
    return ReplayProfiler([root]).evaluate(case or suite_case(), Built(build or make_build(), None))


def test_record_of_the_same_code_answers(tmp_path: Path, store: Store) -> None:
    evidence = store()
    assert ask(tmp_path) == evidence


def test_shared_object_may_differ_when_the_device_code_is_the_same(tmp_path: Path, store: Store) -> None:
    evidence = store()
    assert ask(tmp_path, make_build(so_sha256=digest("f"))) == evidence


def test_edited_source_has_no_evidence(tmp_path: Path, store: Store) -> None:
    store()
    assert ask(tmp_path, make_build(candidate_sha256=digest("e"))) is None


def test_other_device_code_has_no_evidence(tmp_path: Path, store: Store) -> None:
    store(cubin_sha256=digest("d"))
    assert ask(tmp_path) is None


def test_several_cubins_answer_together(tmp_path: Path, store: Store) -> None:
    (cubin,) = make_build().cubins
    both = make_build(cubins=(cubin, cubin.model_copy(update={"sha256": digest("d")})))
    store("first-alone")
    assert ask(tmp_path, both) is None
    evidence = store("both", cubin_sha256=both.cubin_sha256)
    assert ask(tmp_path, both) == evidence


@pytest.mark.parametrize("change", [{"definition": "other"}, {"workload_uuid": "other"}, {"arch": "b200"}])
def test_evidence_of_another_case_does_not_answer(change: dict[str, str], tmp_path: Path, store: Store) -> None:
    store(**change)
    assert ask(tmp_path) is None


def test_evidence_of_the_full_workload_does_not_answer_for_the_shrunk(tmp_path: Path, store: Store) -> None:
    store()
    assert ask(tmp_path, case=suite_case().shrunk()) is None


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_newest_record_wins_whatever_its_name(order: tuple[str, str], tmp_path: Path, store: Store) -> None:
    old, new = order
    store(old, measured_at="2026-11-28T10:00:00+00:00")
    newest = store(new, measured_at="2026-11-29T09:00:00+00:00")
    assert ask(tmp_path) == newest


def test_roots_are_searched_in_depth_and_may_be_absent(tmp_path: Path, store: Store) -> None:
    evidence = store("h100/deep/gemm")
    (tmp_path / "notes.json").write_text("{}")
    profiler = ReplayProfiler([tmp_path / "absent", tmp_path])
    assert profiler.evaluate(suite_case(), Built(make_build(), None)) == evidence
    assert profiler.health().message == "1 stored evidence records"
    assert profiler.health().device is None


def test_nothing_stored_is_nothing_known(tmp_path: Path) -> None:
    profiler = ReplayProfiler([tmp_path])
    built = Built(make_build(), None)
    assert profiler.evaluate(suite_case(), built) is None
    assert profiler.instructions(suite_case(), built).status is ToolStatus.UNAVAILABLE
    safety = profiler.sanitize(suite_case(), built, "racecheck")
    assert (safety.tool, safety.status) == ("racecheck", ToolStatus.UNAVAILABLE)
    profiler.close()


def test_tools_answers_are_stored_with_the_rest(tmp_path: Path, store: Store) -> None:
    evidence = store(safety=(make_safety("memcheck"), make_safety("racecheck", "a race")))
    profiler, built = ReplayProfiler([tmp_path]), Built(make_build(), None)
    assert profiler.instructions(suite_case(), built) == evidence.instructions
    assert profiler.sanitize(suite_case(), built, "racecheck") == evidence.safety[1]
    assert profiler.sanitize(suite_case(), built, "initcheck").status is ToolStatus.UNAVAILABLE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the document"),
        ("{", "the document"),
        ("[]", "the document"),
        ('{"schema_version": 1}', "definition: Field required"),
        ('{"schema_version": 2}', "schema_version"),
        ("\xff", "the document"),
    ],
)
def test_broken_record_is_an_error_that_names_file_and_field(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / f"broken{EVIDENCE_SUFFIX}"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words) as caught:
        ask(tmp_path)
    assert str(path) in str(caught.value)
    assert "measure again or remove the file" in str(caught.value)


def test_field_of_the_wrong_type_is_named_with_its_path(tmp_path: Path, store: Store) -> None:
    text = store().model_dump_json().replace('"sm_count":132', '"sm_count":"many"')
    path = tmp_path / f"gemm{EVIDENCE_SUFFIX}"
    path.write_text(text)
    with pytest.raises(InputError, match=r"device\.sm_count.*found 'many'"):
        load_evidence(path)


def test_a_folder_of_that_name_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / f"kernel{EVIDENCE_SUFFIX}"
    path.mkdir()
    with pytest.raises(InputError, match=r"expected an evidence record, cannot be read: Is a directory; ") as caught:
        ask(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_record_that_cannot_be_saved_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / f"kernel{EVIDENCE_SUFFIX}"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        save_evidence(make_evidence(), path)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_saved_record_reads_back_and_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / f"gemm{EVIDENCE_SUFFIX}"
    evidence = make_evidence()
    save_evidence(evidence, path)
    assert load_evidence(path) == evidence
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    assert list(find_evidence([tmp_path])) == [path]


def test_key_is_made_of_what_was_measured() -> None:
    assert evidence_key(make_evidence(harness="9", measured_at="later")) == evidence_key(make_evidence())
    assert evidence_key(make_evidence(candidate_sha256=digest("0"))) != evidence_key(make_evidence())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run", "trials", 0, "checks", 0, "outputs", 0, "mismatched"), -5),
        (("run", "trials", 0, "checks", 0, "outputs", 0, "nan"), -1),
        (("run", "trials", 0, "checks", 0, "iteration"), -2),
        (("run", "trials", 0, "timing", "stray"), -1),
        (("run", "baseline", "overhead_ns"), 10**30),
        (("schema_version",), 2),
    ],
)
def test_a_number_that_nothing_measures_is_no_evidence(
    tmp_path: Path, place: tuple[str | int, ...], value: int
) -> None:
    """A count below zero would make up for others."""
    path = tmp_path / f"gemm{EVIDENCE_SUFFIX}"
    save_evidence(make_evidence(), path)
    document = json.loads(path.read_text())
    field = document
    for step in place[:-1]:
        field = field[step]
    field[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"{path.name}: not an evidence record: .*{place[-1]}"):
        load_evidence(path)
