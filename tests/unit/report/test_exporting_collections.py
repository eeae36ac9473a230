"""A run of a collection as a collection: what its cases are judged by goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.agent import RunStore, suite_identity
from ptxbench.cases.bindings import BINDINGS_FILE
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InputError
from ptxbench.records import Candidate
from ptxbench.report.exporting import export_run
from tests.support.trace_sets import (
    OURS,
    RMSNORM,
    RMSNORM_DEFINITION,
    RMSNORM_WORKLOADS,
    ROOT,
    blob,
    copy_small,
    edit_json,
)
from tests.unit.factories import make_record

BINDINGS = f"""\
schema_version: 1
bindings:
  - definition: {RMSNORM}
    tolerance: {{atol: 0.25, rtol: 0.125}}
    flops: 4*batch_size*hidden_size
    bytes: 2*(2*batch_size*hidden_size + hidden_size)
    shrunk_axes: {{batch_size: 16}}
  - definition: {RMSNORM}
    workload: f5b14411-d70f-538c-995d-958391a1f895
    tolerance: {{atol: 0.01, rtol: 0.01}}
    made: {{function: make, inputs: [hidden_states], arguments: {{n: 33, eps: 1.0e-6, flag: true}}}}
  - definition: mha_with_lse_d128
    tolerance: {{atol: 0.02, rtol: 0.01}}
    flops: B
"""
FIELDS = ("tolerance", "flops", "bytes", "flops_formula", "bytes_formula", "shrunk_axes", "made", "input_recipe")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    found = copy_small(tmp_path)
    (found / BINDINGS_FILE).write_text(BINDINGS)
    making = "\ndef make(arguments, device):\n    return {}\n"
    edit_json(
        found / RMSNORM_DEFINITION, lambda definition: definition.update(reference=definition["reference"] + making)
    )
    return found


def run_of(collection: Path, tmp_path: Path, *others: Path) -> RunStore:
    suite = load_collections(ROOT, [collection, *others]).suite
    store = RunStore.open(tmp_path / "monday", {suite.name: suite_identity(suite.table)}, {"claude": 1})
    for case in suite.cases("h100"):
        candidate = Candidate(source=f"// {case.name}\n")
        store.save(make_record(model="claude", case=case, source_sha256=candidate.sha256, evidence=None), candidate)
    return store


def test_its_cases_are_judged_as_before(collection: Path, tmp_path: Path) -> None:
    run = run_of(collection, tmp_path)
    export_run(ROOT, str(run.folder), tmp_path / "out", (collection,))
    before, after = (load_collections(ROOT, [folder]).suite.cases("h100") for folder in (collection, tmp_path / "out"))
    assert [case.name for case in after] == [case.name for case in before]
    for old, new in zip(before, after, strict=True):
        assert {name: getattr(new, name, None) for name in FIELDS} == {
            name: getattr(old, name, None) for name in FIELDS
        }
    text = (tmp_path / "out" / BINDINGS_FILE).read_text()
    # What a suite of the checkout says anyway is not repeated.
    assert OURS[0] not in text
    assert OURS[2] not in text


def test_without_bindings_there_is_no_file(tmp_path: Path) -> None:
    run = run_of(copy_small(tmp_path), tmp_path)
    export_run(ROOT, str(run.folder), tmp_path / "out", (tmp_path / "small",))
    assert not (tmp_path / "out" / BINDINGS_FILE).exists()


@pytest.mark.parametrize("exists", [True, False])
def test_an_export_that_fails_leaves_nothing_and_its_advice_works(
    collection: Path, tmp_path: Path, exists: bool
) -> None:
    run, into = run_of(collection, tmp_path), tmp_path / "new" / "out"
    if exists:
        into.mkdir(parents=True)
    with pytest.raises(InputError, match="add --trace-set PATH"):
        export_run(ROOT, str(run.folder), into)
    captured = blob(collection)
    captured.rename(tmp_path / "kept")
    with pytest.raises(InputError, match="no such file"):
        export_run(ROOT, str(run.folder), into, (collection,))
    assert into.exists() is exists
    assert [path for path in (tmp_path / "new").rglob("*") if path != into] == []
    (tmp_path / "kept").rename(captured)
    assert export_run(ROOT, str(run.folder), into, (collection,)).definitions == 4


def test_two_collections_with_different_files_at_one_path_are_refused(tmp_path: Path) -> None:
    collection, other = copy_small(tmp_path), copy_small(tmp_path / "other")
    for name in OURS:
        for path in other.rglob(f"{name}.json*"):
            path.unlink()
    for path in (other / RMSNORM_DEFINITION, other / RMSNORM_WORKLOADS):
        path.write_text(path.read_text().replace(f'"{RMSNORM}"', '"theirs"'))
    run, into = run_of(collection, tmp_path, other), tmp_path / "out"
    assert export_run(ROOT, str(run.folder), tmp_path / "equal", (collection, other)).definitions == 5
    captured = blob(other)
    captured.write_bytes(captured.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match="expected a path that no other collection of the run has another file at"):
        export_run(ROOT, str(run.folder), into, (collection, other))
    assert not into.exists()
