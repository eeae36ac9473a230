"""What a session may spend, and each worker's part."""

import pytest

from ptxbench.agent.budget import Budget, Spent
from ptxbench.plugin.allotment import Allotment

EARLIER = {"a": (1.0, 100), "b": (1.0, 100)}


def left(budget: Budget, step: float) -> float:
    """Dollars until it is exhausted, by spending ``step`` at a time."""
    spent = 0.0
    while not budget.exhausted():
        budget.add(Spent(step, 0))
        spent += step
        assert spent < 1000
    return spent


def test_without_limits_nothing_is_read():
    allotment = Allotment(usd=None, tokens=None, workers=2, spent={})
    assert allotment.budget({"a"}, lambda: pytest.fail("read")).exhausted() == ""


def test_one_process_has_what_earlier_sessions_left():
    allotment = Allotment(usd=10.0, tokens=None, workers=1, spent=EARLIER)
    assert left(allotment.budget(), 0.5) == 8.0


def test_workers_have_equal_shares():
    allotment = Allotment(usd=10.0, tokens=None, workers=4, spent=EARLIER)
    now = {name: Spent(*amount) for name, amount in EARLIER.items()}
    assert left(allotment.budget({"a"}, lambda: now), 0.5) == 2.0
    assert "this worker's share of --budget-usd 10.0 is reached" in _reached(allotment, now)


def _reached(allotment: Allotment, now: dict[str, Spent]) -> str:
    budget = allotment.budget({"a"}, lambda: now)
    budget.add(Spent(100.0, 0))
    return budget.exhausted()


def test_a_replacement_has_what_its_predecessor_left():
    allotment = Allotment(usd=10.0, tokens=None, workers=4, spent=EARLIER)
    now = {"a": Spent(1.5, 150), "b": Spent(3.0, 300), "c": Spent(0.5, 50)}
    # Of its share of 2.0, half a dollar went into "a" and half into "c"; what went into "b" is another worker's.
    assert left(allotment.budget({"a", "c"}, lambda: now), 0.25) == 1.0


def test_it_travels_to_a_worker():
    import execnet

    allotment = Allotment(usd=10.0, tokens=None, workers=4, spent=EARLIER)
    assert Allotment(**execnet.loads(execnet.dumps(allotment._asdict()))) == allotment
