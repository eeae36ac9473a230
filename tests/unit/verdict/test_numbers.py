"""What the judge makes of outputs: shapes, elements, calls of the timed loop, inputs that were written to."""

from typing import Any

import pytest

from ptxbench.records import CheckedCall, Outcome, Verdict
from ptxbench.records.mismatch import MismatchPattern
from ptxbench.verdict import Rule, judge
from tests.unit.factories import make_build, make_call, make_comparison, make_evidence, make_run, make_trial, suite_case
from tests.unit.verdict.parts import one_bad_output, one_bad_trial, run_verdict

FINITE = MismatchPattern(axes=(), zeros=0, infinite=0)


def test_a_modified_input_comes_before_right_numbers() -> None:
    verdict = one_bad_trial(checks=(make_call(), make_call(5, inputs_intact=False)))
    assert (verdict.outcome, verdict.rule) == (Outcome.NUMERICAL_ERROR, Rule.INPUTS_MODIFIED)
    assert "trial 1 (family normal), timed-loop call 5" in verdict.message


def test_wrong_shape_and_dtype() -> None:
    shape = one_bad_output(shape=(8192, 7167), mismatched=4)
    assert (shape.outcome, shape.rule) == (Outcome.WRONG_SHAPE_OR_DTYPE, Rule.SHAPE)
    assert "expected shape (8192, 7168), found (8192, 7167)" in shape.message
    dtype = one_bad_output(dtype="float32", mismatched=4)
    assert (dtype.outcome, dtype.rule) == (Outcome.WRONG_SHAPE_OR_DTYPE, Rule.DTYPE)
    assert "expected dtype bfloat16, found float32" in dtype.message


def test_a_mismatch_counts_elements_and_nan() -> None:
    verdict = one_bad_output(mismatched=1000, nan=12, max_abs_error=3.25, first_mismatches=((0, 5), (0, 6)))
    assert (verdict.outcome, verdict.rule) == (Outcome.NUMERICAL_ERROR, Rule.MISMATCH)
    assert "1000 of 58720256 elements beyond atol 0.01 + rtol 0.01, 12 of them NaN" in verdict.message
    assert verdict.message.endswith("largest error 3.25, first at (0, 5)")
    assert verdict.mismatch_share == 1000 / 58720256
    assert verdict.speedup is None


def test_one_element_is_enough() -> None:
    assert one_bad_output(mismatched=1).outcome is Outcome.NUMERICAL_ERROR


def test_right_when_checked_and_wrong_when_timed() -> None:
    verdict = one_bad_output(iteration=31, mismatched=59)
    assert (verdict.outcome, verdict.rule) == (Outcome.NUMERICAL_ERROR, Rule.TIMED_ITERATION)
    assert "timed-loop call 31" in verdict.message
    assert one_bad_output(iteration=31, nan=1).rule == Rule.TIMED_ITERATION


def test_rounding_in_a_timed_iteration_is_not_cheating() -> None:
    # One element in a million of 8192 x 7168 is 58.
    assert one_bad_output(iteration=31, mismatched=58).correct


def near_miss(**changes: Any) -> CheckedCall:
    """A correctness call that failed by rounding: some elements, all finite, whose pattern is known."""
    values: dict[str, Any] = {"mismatched": 2, "where": FINITE} | changes
    return make_call(outputs=(make_comparison(**values),))


def test_a_correctness_call_that_missed_narrowly_is_replaced_by_one_on_another_draw() -> None:
    verdict = one_bad_trial(near_miss=near_miss())
    assert verdict.correct
    assert verdict.message.endswith("; correctness calls repeated on another draw: 1, for 2 elements beyond it")


def test_a_second_miss_decides() -> None:
    again = one_bad_trial(near_miss=near_miss(), checks=(near_miss(),))
    assert (again.outcome, again.rule) == (Outcome.NUMERICAL_ERROR, Rule.MISMATCH)


@pytest.mark.parametrize(
    "changes",
    [{"mismatched": 59}, {"nan": 1}, {"where": FINITE.model_copy(update={"infinite": 1})}, {"where": None}],
    ids=str,
)
def test_more_than_rounding_is_replaced_by_nothing(changes: dict[str, Any]) -> None:
    assert one_bad_trial(near_miss=near_miss(**changes)).rule == Rule.MISMATCH


def test_what_is_no_mismatch_is_no_near_miss() -> None:
    assert near_miss().is_near_miss
    assert not make_call().is_near_miss
    assert not near_miss().model_copy(update={"iteration": 3}).is_near_miss
    assert not near_miss(dtype="int32", atol=0.0, rtol=0.0).is_near_miss, "an index that is nearly right is wrong"
    exact = make_comparison(dtype="int32", atol=0.0, rtol=0.0)
    assert make_call(outputs=(exact, *near_miss().outputs)).is_near_miss
    assert one_bad_trial(near_miss=near_miss().model_copy(update={"inputs_intact": False})).rule == Rule.INPUTS_MODIFIED
    assert one_bad_trial(near_miss=near_miss().model_copy(update={"guards_intact": False})).rule == Rule.MISMATCH


def test_a_later_correctness_call_comes_before_an_earlier_timed_one() -> None:
    bad = (make_comparison(mismatched=1),)
    trials = (
        make_trial(checks=(make_call(), make_call(3, outputs=bad))),
        make_trial(checks=(make_call(outputs=bad),)),
        make_trial(),
    )
    assert run_verdict(trials=trials).rule == Rule.MISMATCH


def test_a_mismatch_in_the_only_trial_is_an_error_however_few_trials_ran() -> None:
    trial = make_trial(checks=(make_call(outputs=(make_comparison(mismatched=1),)),), timing=None)
    assert run_verdict(trials=(trial,)).rule == Rule.MISMATCH


def test_overflowed_errors_have_no_size() -> None:
    verdict = one_bad_trial(checks=(make_call(outputs=(make_comparison(mismatched=1, rms_error=float("inf")),)),))
    assert verdict.relative_rms == 0.002
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_several_outputs_are_all_compared() -> None:
    case = suite_case("mha_with_lse_d128")
    lse = case.output_shapes().keys() - {"O"}
    assert lse
    full = make_call(case=case)
    partial = make_call(outputs=full.outputs[:1])
    for call, rule in ((full, Rule.PASSED), (partial, Rule.EVIDENCE_INCOMPLETE)):
        evidence = make_evidence(case, run=make_run(trials=(make_trial(checks=(call,)),) * 3))
        assert judge(case, make_build(), evidence).rule == rule


def test_nan_alone_is_a_mismatch() -> None:
    assert one_bad_output(nan=1).rule == Rule.MISMATCH
