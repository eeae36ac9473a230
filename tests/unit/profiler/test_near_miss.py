"""A correctness call that misses by rounding: what becomes of it in an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.evaluation import _Attempt
from ptxbench.profiler.procedure import Stopwatch
from ptxbench.records import CheckedCall, RunEvidence, RunStatus
from ptxbench.records.mismatch import MismatchPattern
from tests.unit.profiler.stand_in import Start
from tests.unit.profiler.test_evaluation_evidence import BASELINE, JOB, TRIALS, candidate, checked, stand_ins


def missed(mismatched: int) -> CheckedCall:
    """A correctness call of which so many elements of ten million are beyond tolerance."""
    call = checked(-1, mismatched)
    where = MismatchPattern(axes=(), zeros=0, infinite=0) if mismatched else None
    output = call.outputs[0].model_copy(update={"shape": (10**7,), "elements": 10**7, "where": where})
    return call.model_copy(update={"outputs": (output,)})


def near_miss_of(
    start: Start, check: Callable[[int], CheckedCall], another: Callable[[], Any]
) -> tuple[RunEvidence, list[Any], list[Any]]:
    """Of one attempt, with what was staged and the draws that the state keeps.

    The stand-in of the library can do nothing but be timed: its results of a draw that is still to be checked must not
    lie in memory that the candidate's process maps.
    """
    worker = start(candidate('return ["_Z4workv"]'))
    worker.wait_ready()
    state, nothing = stand_ins(lambda: worker, check)
    staged: list[Any] = []
    state.stage, state.another_draw = staged.append, another
    evidence = _Attempt(state, BASELINE, nothing, Stopwatch()).run(dict(JOB), nothing)
    return evidence, staged, state.checked


@pytest.mark.parametrize("again", [0, 1])
def test_a_correctness_call_that_missed_narrowly_is_made_once_more_on_another_draw(start: Start, again: int) -> None:
    """Honest kernels round differently from the library, so no draw is safe for all of them."""
    answers = iter([1, again])

    def check(iteration: int) -> CheckedCall:
        return missed(next(answers, 0)) if iteration < 0 else checked(iteration)

    evidence, staged, known = near_miss_of(start, check, lambda: "another")
    assert evidence.status is RunStatus.COMPLETED
    first = evidence.trials[0]
    assert first.near_miss == missed(1)
    assert first.checks[0] == missed(again)
    assert len(evidence.trials) == (1 if again else TRIALS)
    assert all(trial.near_miss is None for trial in evidence.trials[1:])
    assert staged.count("another") == 1
    assert "another" not in known, "a draw that no library has qualified is not kept for others"


def test_where_there_is_no_other_draw_beside_a_candidate_its_near_miss_stands(start: Start) -> None:
    """As a fault of ours its turn would be excluded, and the candidate's process may be why there is none."""

    def another() -> Any:
        raise InfrastructureError("reference_failed", "the reference failed: cuBLAS found no memory")

    def check(iteration: int) -> CheckedCall:
        return missed(1) if iteration < 0 else checked(iteration)

    evidence, _, _ = near_miss_of(start, check, another)
    assert evidence.status is RunStatus.COMPLETED
    assert [(trial.checks, trial.near_miss) for trial in evidence.trials] == [((missed(1),), None)]
