"""Integer and boolean outputs: equal or wrong, whatever tolerance the case has."""

from __future__ import annotations

import pytest

from ptxbench.cases import Case
from ptxbench.cases.defaults import tolerance_of
from ptxbench.records import Outcome, Verdict
from ptxbench.trace.definition import DType
from ptxbench.verdict import judge
from ptxbench.verdict.rules import Rule
from tests.unit.factories import make_build, make_call, make_comparison, make_evidence, make_run, make_trial, suite_case

INTEGERS = ["int8", "int16", "int32", "int64", "bool"]


def case_of(dtype: str) -> Case:
    case = suite_case()
    outputs = {"C": case.definition.outputs["C"].model_copy(update={"dtype": DType(dtype)})}
    return case.model_copy(update={"definition": case.definition.model_copy(update={"outputs": outputs})})


def judged(case: Case, atol: float, rtol: float, mismatched: int = 0) -> Verdict:
    output = make_comparison(case, atol=atol, rtol=rtol, mismatched=mismatched)
    calls = tuple(make_call(iteration, case=case, outputs=(output,)) for iteration in (-1, 23))
    return judge(case, make_build(), make_evidence(run=make_run(trials=(make_trial(checks=calls),) * 3)))


@pytest.mark.parametrize("dtype", [each.value for each in DType])
def test_what_has_a_tolerance(dtype: str) -> None:
    expected = (0.0, 0.0) if dtype in INTEGERS else (0.01, 0.01)
    found = tolerance_of(case_of(dtype), "C")
    assert (found.atol, found.rtol) == expected


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_were_compared_exactly_are_judged(dtype: str) -> None:
    right = judged(case_of(dtype), 0.0, 0.0)
    assert right.correct
    assert "(integers equal)" in right.message
    assert judged(case_of(dtype), 0.0, 0.0, mismatched=1).outcome is Outcome.NUMERICAL_ERROR


def test_integers_that_were_compared_with_a_tolerance_are_unknown() -> None:
    found = judged(case_of("int32"), 0.01, 0.01)
    assert (found.outcome, found.rule) == (Outcome.UNKNOWN, Rule.EVIDENCE_TOLERANCE)
