"""What a session has done so far."""

import pytest

from ptxbench.agent import Skipped
from ptxbench.agent.meter import Meter, Progress
from ptxbench.errors import InfrastructureError
from ptxbench.verdict import judge_extraction_error
from tests.unit.factories import make_record


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock) -> Meter:
    return Meter(clock)


def test_turns_are_counted_by_what_became_of_them(meter):
    meter.plan(6)
    wrong = make_record(1, build=None, evidence=None, verdict=judge_extraction_error("no code"))
    for resolution in (make_record(0), wrong, Skipped("early"), InfrastructureError("oracle_died", "gone")):
        meter.resolved(resolution)
    found = meter.progress()
    assert (found.planned, found.resolved, found.judged, found.correct) == (6, 4, 2, 1)


def test_calls_add_up(meter):
    meter.called(0.25, 1000)
    meter.called(0.5, 500)
    found = meter.progress()
    assert (found.calls, found.usd, found.tokens) == (2, 0.75, 1500)


def test_the_busy_share_counts_overlapping_measurements_once(meter, clock):
    clock.now = 10.0
    assert meter.progress().busy_share is None
    with meter.measuring():
        clock.now = 12.0
        with meter.measuring():
            clock.now = 14.0
        clock.now = 15.0
        assert meter.progress().busy_share == 1.0
    clock.now = 20.0
    found = meter.progress()
    assert (found.busy_s, found.measuring_s, found.busy_share) == (5.0, 10.0, 0.5)


def test_a_fault_ends_a_measurement_too(meter, clock):
    def fail() -> None:
        with meter.measuring():
            clock.now = 1.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now = 4.0
    assert meter.progress().busy_share == 0.25


def test_what_is_left_follows_from_the_turns_that_took_time(meter, clock):
    meter.plan(10)
    for _ in range(4):
        meter.resolved(make_record())
    clock.now = 60.0
    assert meter.progress().left_s is None
    for _ in range(2):
        meter.worked()
        meter.resolved(make_record())
    assert meter.progress().left_s == pytest.approx(4 * 60.0 / 2)


def test_workers_add_up():
    one = Progress(planned=4, resolved=2, correct=1, usd=0.5, elapsed_s=10.0, busy_s=4.0, measuring_s=8.0)
    two = Progress(planned=4, resolved=4, correct=2, usd=0.25, elapsed_s=12.0, busy_s=8.0, measuring_s=8.0)
    both = one.plus(two)
    assert (both.planned, both.resolved, both.correct, both.usd, both.elapsed_s) == (8, 6, 3, 0.75, 12.0)
    assert both.busy_share == 0.75
    assert Progress.model_validate_json(both.model_dump_json()) == both
