"""Which case a record is of."""

from __future__ import annotations

import pytest

from ptxbench.agent.run_cases import RunCases, definition_suite
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InputError
from tests.support.trace_sets import ROOT, SMALL
from tests.unit.factories import make_record, suite_case


def test_a_case_of_a_suite() -> None:
    record = make_record()
    assert RunCases(ROOT).find(("primary",), record) == suite_case()
    with pytest.raises(InputError, match="unknown suite"):
        RunCases(ROOT).find(("none-of-ours",), record)


def test_a_case_of_a_collection() -> None:
    case = load_collections(ROOT, [SMALL]).suite.case("rmsnorm_h2048.d9a08d1f", "h100")
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
