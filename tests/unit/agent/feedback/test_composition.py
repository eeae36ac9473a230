"""What a feedback says of the turns before."""

from collections.abc import Sequence

from ptxbench.agent.feedback import feedback
from ptxbench.agent.feedback.parts import NEXT_CHARS
from ptxbench.models import PastTurn
from ptxbench.records import Target
from tests.unit.factories import make_evidence, make_record, make_run, make_timing, make_trial, suite_case


def turn(number: int, span_ns: int | None) -> PastTurn:
    """A correct turn of that latency; with None, one whose result is wrong."""
    if span_ns is None:
        record = make_record(number)
        wrong = record.verdict.model_copy(update={"outcome": "unknown", "speedup": None})
        return PastTurn(record.model_copy(update={"verdict": wrong}), "x")
    trials = tuple(make_trial(timing=make_timing(span_ns=span_ns)) for _ in range(3))
    return PastTurn(make_record(number, evidence=make_evidence(run=make_run(trials=trials))), "x")


def beside(past: PastTurn, baseline_ms: float | None) -> PastTurn:
    """The same turn beside a library of that latency."""
    verdict = past.record.verdict.model_copy(update={"baseline_ms": baseline_ms})
    return past._replace(record=past.record.model_copy(update={"verdict": verdict}))


def said(*spans: int | None, library: Sequence[float | None] = ()) -> str:
    """The feedback on the last of these turns."""
    turns = [turn(number, span) for number, span in enumerate(spans)]
    turns = [beside(past, ms) for past, ms in zip(turns, library, strict=True)] if library else turns
    return feedback(suite_case(), turns[-1], turns_left=3, toolchain=None, history=turns[:-1])


def test_the_fastest_correct_kernel_so_far_is_named() -> None:
    assert "Your best correct kernel so far is that of your answer 2: 1.057x." in said(800_000, 700_000, 750_000)
    assert "Your best correct kernel so far is that of your answer 1: 0.925x." in said(800_000, None)


def test_a_kernel_that_is_the_fastest_is_told_so() -> None:
    assert "Of your correct kernels so far, this one is the best." in said(800_000, None, 700_000)


def test_answers_are_counted_not_turns() -> None:
    """A turn that a fault took is not in the conversation."""
    turns = [turn(0, 800_000), turn(2, 700_000), turn(3, 750_000)]
    text = feedback(suite_case(), turns[-1], turns_left=3, toolchain=None, history=turns[:-1])
    assert "that of your answer 2: 1.057x." in text


def test_a_kernel_that_hits_the_target_is_preferred() -> None:
    generic = turn(0, 600_000)
    verdict = generic.record.verdict.model_copy(update={"target": Target.NOT_EXECUTED})
    generic = generic._replace(record=generic.record.model_copy(update={"verdict": verdict}))
    case = suite_case()
    assert "this one is the best." in feedback(case, turn(1, 800_000), turns_left=3, toolchain=None, history=[generic])
    text = feedback(case, turn(1, None), turns_left=3, toolchain=None, history=[generic])
    assert "that of your answer 1: 1.233x, without target instructions." in text


def test_of_equal_kernels_the_first_is_named() -> None:
    assert "that of your answer 1: 1.057x." in said(700_000, 700_000)


def test_nothing_is_said_where_there_is_nothing_to_compare() -> None:
    for text in (said(800_000), said(None, None)):
        assert "so far" not in text


def test_what_comes_next_fits_its_budget() -> None:
    text = said(800_000, 700_000, 750_000, library=(0.7336, 0.7661, 0.74))
    assert "may be noise" in text
    assert len(text.partition("Next:\n")[2]) <= NEXT_CHARS
    assert "left out" not in text


def test_how_far_the_librarys_own_latencies_lie_apart() -> None:
    noise = "Beside your answers the library took 0.7336 ms to 0.7661 ms: differences below 4.4% may be noise."
    assert noise in said(800_000, 700_000, 750_000, library=(0.7336, 0.7661, 0.74))
    assert noise in said(800_000, 700_000, 750_000, library=(0.7661, None, 0.7336))
    for library in ((0.74, 0.74), (0.74, None), (None, 0.74)):
        assert "may be noise" not in said(800_000, 700_000, library=library)
    assert "may be noise" not in said(800_000, library=(0.74,))


def test_the_medians_of_the_trials_are_told_apart() -> None:
    trials = tuple(make_trial(timing=make_timing(span_ns=span)) for span in (700_000, 720_000, 710_000))
    past = PastTurn(make_record(0, evidence=make_evidence(run=make_run(trials=trials))), "x")
    text = feedback(suite_case(), past, turns_left=3, toolchain=None)
    assert "median (3 trials: 0.7 ms to 0.72 ms); " in text


def test_the_gate_of_precision_is_told_beside_every_error() -> None:
    text = feedback(suite_case(), turn(0, 700_000), turns_left=3, toolchain=None)
    (line,) = [line for line in text.splitlines() if line.startswith("- RMS of the error")]
    assert "(the library's " in line
    assert "; for a speedup at most " in line
