"""A collection as a whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.trace import FileError
from ptxbench.trace.trace_set import read_solutions, read_trace_set, refuse_shared_names
from tests.support.trace_sets import (
    OURS,
    RMSNORM,
    RMSNORM_DEFINITION,
    RMSNORM_WORKLOADS,
    ROOT,
    SMALL,
    copy_small,
    edit_json,
    edit_line,
)


def test_the_small_collection() -> None:
    found = read_trace_set(SMALL)
    assert set(found.definitions) == {*OURS, RMSNORM}
    assert {name: len(lines) for name, lines in found.workloads.items()} == {**dict.fromkeys(OURS, 1), RMSNORM: 2}
    assert [file.solution.name for file in read_solutions(SMALL)] == [
        "rmsnorm_h2048_row_per_block",
        "rmsnorm_h2048_torch",
    ]
    assert read_solutions(SMALL, "gemm_n7168_k5120") == ()


def test_its_definitions_of_ours_are_ours() -> None:
    for name in OURS:
        (path,) = (SMALL / "definitions").rglob(f"{name}.json")
        assert path.read_bytes() == (ROOT / "cases" / "definitions" / path.parent.name / path.name).read_bytes()


def test_results_are_not_read(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    before = set(read_trace_set(collection).definitions)
    (collection / "traces").mkdir()
    (collection / "traces" / "x.jsonl").write_text("not read\n")
    assert set(read_trace_set(collection).definitions) == before


def test_what_is_no_collection(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the folder of a FlashInfer-Trace collection, found none"):
        read_trace_set(tmp_path / "none")
    (tmp_path / "stuff").mkdir()
    with pytest.raises(InputError, match=r"with folders definitions and workloads; found stuff"):
        read_trace_set(tmp_path)
    (tmp_path / "stuff" / "definition.json").write_text("{}")
    with pytest.raises(InputError, match=r"found problems of SOL-ExecBench; convert them first: ptxbench convert "):
        read_trace_set(tmp_path)


def test_a_definition_twice(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    shutil.copyfile(collection / RMSNORM_DEFINITION, collection / "definitions" / "again.json")
    with pytest.raises(FileError, match="each definition once") as caught:
        read_trace_set(collection)
    assert caught.value.field == "name"
    assert str(collection / "definitions" / "again.json") in caught.value.found


def test_a_definition_in_two_collections(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="leave one of the collections out") as caught:
        refuse_shared_names((read_trace_set(SMALL), read_trace_set(copy_small(tmp_path))))
    assert (caught.value.field, caught.value.line) == ("name", 2)


def test_a_workload_of_no_definition(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    for line in (1, 2):
        edit_line(collection / RMSNORM_WORKLOADS, lambda data: data.update(definition="rmsnorm_h2084"), line)
    with pytest.raises(FileError, match="the name of a definition") as caught:
        read_trace_set(collection)
    assert caught.value.field == "definition"
    assert "Did you mean 'rmsnorm_h2048'" in caught.value.found


def test_a_uuid_in_two_files(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    shutil.copyfile(collection / RMSNORM_WORKLOADS, collection / "workloads" / "z.jsonl")
    with pytest.raises(FileError, match="each uuid once") as caught:
        read_trace_set(collection)
    assert (caught.value.field, caught.value.line) == ("workload.uuid", 1)
    assert str(collection / RMSNORM_WORKLOADS) in caught.value.found


def test_a_solution_twice(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    path = next(collection.rglob("rmsnorm_h2048_torch.json"))
    edit_json(path, lambda data: data.update(name="rmsnorm_h2048_row_per_block"))
    with pytest.raises(FileError, match="each solution once") as caught:
        read_solutions(collection)
    assert caught.value.file == path
