"""The state machine of one device, with time that a test says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.pool.readings import Alarm
from ptxbench.profiler.pool.watch import DeviceWatch, Limits

LIMITS = Limits(calm_s=3.0, pause_s=100.0, attempts=3, retry_s=2.0, quarantine_s=60.0, quarantine_most_s=100.0)
HEAT, DEAD = Alarm("temperature", "93 C"), Alarm("oracle", "it ended")


def state(watch: DeviceWatch) -> str:
    """Without what a type checker remembers of it."""
    return watch.state


def ready(now: float = 0.0) -> DeviceWatch:
    watch = DeviceWatch(LIMITS, now)
    assert watch.state == "restarting"
    watch.started(now)
    assert watch.ready
    assert watch.events == [], "that a device was started is nothing to tell"
    return watch


def test_what_passes_pauses_until_it_was_calm_for_a_while_and_qualifies():
    watch = ready()
    watch.alarm(HEAT, 10.0)
    assert (watch.state, watch.reason, watch.since) == ("paused", "93 C", 10.0)
    watch.calm(11.0)
    watch.calm(13.5)
    assert watch.state == "paused"
    watch.alarm(HEAT, 13.8)
    watch.calm(14.0)
    watch.calm(16.9)
    assert watch.state == "paused", "the calm began anew"
    watch.calm(17.0)
    assert state(watch) == "qualifying"
    watch.qualified(20.0)
    assert (watch.state, watch.reason, watch.kind) == ("ready", "", None)
    assert [event.state for event in watch.events] == ["paused", "qualifying", "ready"]


def test_a_dead_oracle_is_restarted_and_qualifies():
    watch = ready()
    watch.alarm(DEAD, 1.0)
    assert (watch.state, watch.may_try(1.0)) == ("restarting", True)
    watch.started(9.0)
    assert watch.state == "qualifying"
    watch.alarm(HEAT, 10.0)
    assert state(watch) == "paused"


def test_an_alarm_while_it_restarts_does_not_make_it_ready_sooner():
    watch = ready()
    watch.alarm(DEAD, 1.0)
    watch.alarm(HEAT, 2.0)
    assert (watch.state, watch.kind) == ("restarting", "oracle"), "what heat needs does not cure it"
    watch.calm(3.0)
    watch.calm(30.0)
    assert watch.state == "restarting"


def test_failing_again_and_again_quarantines_and_each_time_for_longer():
    watch = ready()
    watch.alarm(DEAD, 0.0)
    for now in (1.0, 3.0):
        watch.start_failed("no hello", now)
        assert state(watch) == "restarting"
        assert not watch.may_try(now + 1.9)
        assert watch.may_try(now + 2.0)
    watch.start_failed("no hello", 5.0)
    assert (watch.state, watch.reason) == ("quarantined", "the oracle does not start: no hello")
    watch.alarm(HEAT, 6.0)
    watch.calm(7.0)
    watch.tick(64.9)
    assert state(watch) == "quarantined"
    watch.tick(65.0)
    assert state(watch) == "restarting"
    watch.start_failed("no hello", 66.0)
    assert state(watch) == "quarantined", "one try"
    watch.tick(66.0 + 99.9)
    assert watch.state == "quarantined", "doubled, to the most"
    watch.tick(66.0 + 100.0)
    watch.started(170.0)
    watch.qualified(171.0)
    assert watch.ready
    watch.alarm(DEAD, 200.0)
    watch.start_failed("no hello", 201.0)
    assert state(watch) == "restarting", "what was mended counts no more"


def test_a_failed_qualifying_run_is_tried_again_behind_a_calm():
    watch = ready()
    watch.alarm(HEAT, 0.0)
    watch.calm(1.0)
    watch.calm(4.0)
    watch.disqualified("too slow", 5.0)
    assert (watch.state, watch.reason) == ("paused", "the qualifying run failed: too slow")
    watch.calm(6.0)
    watch.calm(9.0)
    watch.disqualified("too slow", 10.0)
    watch.calm(12.0)
    watch.calm(15.0)
    watch.disqualified("too slow", 16.0)
    assert watch.state == "quarantined"


def test_who_is_paused_for_too_long_is_quarantined():
    watch = ready()
    watch.alarm(HEAT, 0.0)
    watch.tick(100.0)
    assert watch.state == "paused"
    watch.tick(100.1)
    assert (watch.state, watch.reason) == ("quarantined", "paused for 100 s: 93 C")
    watch.tick(160.1)
    watch.start_failed("no hello", 161.0)
    assert state(watch) == "quarantined", "one try"


def test_without_a_device_nothing_is_tried_again_soon():
    watch = DeviceWatch(LIMITS, 0.0)
    watch.start_failed("no such device", 1.0, final=True)
    assert watch.state == "quarantined"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["heat", "dead", "calm", "started", "start_failed", "qualified", "disqualified", "tick"]),
        st.floats(0.0, 50.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_ready_only_behind_a_start_or_a_qualifying_run(steps: list[tuple[str, float]]):
    """Nothing but the run that was asked for leads back; each step comes only where the pool takes it."""
    watch, now = ready(), 0.0
    for step, passed in steps:
        now += passed
        before = watch.state
        if step == "heat":
            watch.alarm(HEAT, now)
        elif step == "dead":
            watch.alarm(DEAD, now)
        elif step == "calm":
            watch.calm(now)
        elif step == "tick":
            watch.tick(now)
        elif before == "restarting" and step == "started":
            watch.started(now)
        elif before == "restarting" and step == "start_failed":
            watch.start_failed("no", now)
        elif before == "qualifying" and step == "qualified":
            watch.qualified(now)
        elif before == "qualifying" and step == "disqualified":
            watch.disqualified("no", now)
        if watch.ready and before != "ready":
            assert (before, step) == ("qualifying", "qualified")
        assert watch.since <= now
        assert watch.ready == (watch.reason == "")
    # Whatever happened, a device that is well comes back.
    for _ in range(400):
        now += 1.0
        watch.tick(now)
        if watch.state == "restarting":
            watch.started(now)
        elif watch.state == "qualifying":
            watch.qualified(now)
        watch.calm(now)
    assert watch.ready
