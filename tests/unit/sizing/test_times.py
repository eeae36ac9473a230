"""Stage times of a run."""

import random
from statistics import fmean

import pytest

from ptxbench.errors import InputError
from ptxbench.sizing.times import log_normal, measured, of_turns, seldom
from tests.unit.factories import make_evidence, make_instructions, make_record, make_run, make_safety


def turns(count: int, **changes: object):
    stages = {"build": 3000.0, "evaluate": 500.0, "sanitize": 1500.0, "instructions": 3000.0, "judge": 2.0}
    return [make_record().model_copy(update={"stages_ms": stages, **changes}) for _ in range(count)]


def test_distributions_have_the_mean_that_they_say():
    for stage in (log_normal(30.0, 0.5), seldom(2.65, 14.0, 0.113)):
        chance = random.Random(0)
        assert fmean(stage.draw(chance) for _ in range(50_000)) == pytest.approx(stage.mean_s, rel=0.02)


def test_what_a_run_measured_counts_and_so_do_turns_without_a_gpu():
    failed = turns(20, stages_ms={"build": 1000.0, "judge": 1.0}, evidence_origin="none")
    found = of_turns([*turns(20, evidence_origin="measured"), *failed], "run x", model_s=12.0)
    assert (found.model.mean_s, found.build.mean_s, found.gpu.mean_s) == (12.0, 2.0, 2.5)


def test_what_a_turn_waited_for_the_gpu_is_none_of_its_time():
    """A run of many conversations on one GPU: its wall times hold the queue, the evidence what the device took."""
    evidence = make_evidence(
        run=make_run(stages_ms={"load": 100.0, "time": 400.0}),
        safety=(make_safety(wall_ms=1500.0), make_safety("racecheck", wall_ms=9000.0, checked_before="2026-11-29")),
        instructions=make_instructions(wall_ms=3000.0),
    )
    waited = {"build": 3000.0, "evaluate": 60_000.0, "sanitize": 40_000.0, "instructions": 50_000.0}
    found = of_turns(turns(20, evidence=evidence, stages_ms=waited, evidence_origin="measured"), "run x", model_s=1.0)
    assert found.gpu.mean_s == pytest.approx(0.5 + 1.5 + 3.0)


def test_of_older_evidence_the_wall_times_are_all_there_is():
    old = make_evidence(run=make_run(stages_ms={"time": 400.0}), safety=(make_safety(wall_ms=None),))
    found = of_turns(turns(20, evidence=old, evidence_origin="measured"), "run x", model_s=1.0)
    assert found.gpu.mean_s == pytest.approx(0.4 + 1.5 + 3.0)


def test_a_run_that_says_too_little_is_refused():
    with pytest.raises(InputError, match="expected at least 20 turns that a GPU measured, found 0"):
        of_turns(turns(30, evidence_origin="replayed"), "run x", model_s=1.0)
    with pytest.raises(InputError, match="expected turns that were built, found none"):
        of_turns(turns(30, evidence_origin="measured", stages_ms={"evaluate": 1.0}), "run x", model_s=1.0)
    with pytest.raises(InputError, match="say --model-seconds"):
        of_turns(turns(30, evidence_origin="measured"), "run x")


def test_measured_times_are_those_of_the_page():
    times = measured()
    assert times.model.mean_s == pytest.approx(34.0, abs=0.1)
    assert measured(10.0).model.mean_s == 10.0
