"""Stage times of a run."""

import random
from statistics import fmean

import pytest

from ptxbench.errors import InputError
from ptxbench.sizing.times import log_normal, measured, of_turns, seldom
from tests.unit.factories import make_record


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


def test_a_run_that_says_too_little_is_refused():
    with pytest.raises(InputError, match="expected at least 20 turns that a GPU measured, found 0"):
        of_turns(turns(30, evidence_origin="replayed"), "run x", model_s=1.0)
    with pytest.raises(InputError, match="say --model-seconds"):
        of_turns(turns(30, evidence_origin="measured"), "run x")


def test_measured_times_are_those_of_the_page():
    times = measured()
    assert times.model.mean_s == pytest.approx(34.0, abs=0.1)
    assert measured(10.0).model.mean_s == 10.0
