"""Which case a record is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.agent.run_cases import RunCases, definition_suite
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InputError
from tests.support.trace_sets import OURS, RMSNORM, RMSNORM_WORKLOADS, ROOT, SMALL, blob, copy_small
from tests.unit.factories import make_record, suite_case


def test_a_case_of_a_suite() -> None:
    record = make_record()
    assert RunCases(ROOT).find(("primary",), record) == suite_case()
    # Of a run that is of a collection too, which nobody named.
    assert RunCases(ROOT).find(("primary", "trace-set-small/x"), record) == suite_case()
    with pytest.raises(InputError, match="unknown suite"):
        RunCases(ROOT).find(("none-of-ours",), record)


def test_what_a_run_is_not_of_need_not_be_there(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    case = load_collections(ROOT, [collection], [OURS[0]]).suite.case(OURS[0], "h100")
    blob(collection).unlink()
    suites, record = (definition_suite(case),), make_record(case=case)
    assert RunCases(ROOT, [collection]).find(suites, record) == case
    with pytest.raises(InputError, match="no such file"):
        RunCases(ROOT, [collection]).find((*suites, f"{case.suite}/{RMSNORM}"), record)
    with pytest.raises(InputError, match=r"expected the case gemm.* on h100 in the suites trace-set-small/gone"):
        RunCases(ROOT, [collection]).of((f"{case.suite}/gone",), record.key)


def test_a_workload_by_another_name(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    case = load_collections(ROOT, [collection]).suite.case(f"{RMSNORM}.d9a08d1f", "h100")
    lines = collection / RMSNORM_WORKLOADS
    lines.write_text(lines.read_text().splitlines()[0])
    found = RunCases(ROOT, [collection]).find((definition_suite(case),), make_record(case=case, evidence=None))
    assert (found.name, found.workload) == (RMSNORM, case.workload)


def test_a_case_of_a_collection() -> None:
    case = load_collections(ROOT, [SMALL]).suite.case("rmsnorm_h2048.d9a08d1f", "h100")
    record = make_record(case=case, evidence=None)
    assert RunCases(ROOT, [SMALL]).find((definition_suite(case),), record) == case
    record = make_record(case=suite_case())
    key = record.key.model_copy(update={"case": case.name})
    record = record.model_copy(update={"key": key})
    name = definition_suite(case)
    assert name == "trace-set-small/rmsnorm_h2048"
    assert RunCases(ROOT, [SMALL]).find((name,), record) == case
    with pytest.raises(InputError, match=r"the run is of the collection trace-set-small.*add --trace-set PATH"):
        RunCases(ROOT).find((name,), record)
    other = record.model_copy(update={"key": key.model_copy(update={"case": "nothing"})})
    with pytest.raises(InputError, match="expected the case nothing on h100"):
        RunCases(ROOT, [SMALL]).find((name,), other)
