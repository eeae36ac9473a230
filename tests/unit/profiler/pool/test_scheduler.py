"""The scheduling core: pure, so that time and devices are what a test says."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.profiler.pool.costs import Costs
from ptxbench.profiler.pool.residents import Need
from ptxbench.profiler.pool.scheduler import OLDEST_EVERY, Scheduler, Task

GIB = 1 << 30
MEMORY = 80 * GIB
NEED = Need(10 * GIB, 4 * GIB)


def learned(evaluate_s: float = 1.0, build_s: float = 4.0, states: str = "abcdefgh") -> Costs:
    costs = Costs()
    for state in states:
        costs.learn("evaluate", state, evaluate_s, built=False)
        costs.learn("evaluate", state, evaluate_s + build_s, built=True)
    return costs


def scheduler(devices: int, costs: Costs | None = None) -> Scheduler:
    made = Scheduler(costs or learned())
    for device in range(devices):
        made.open(device, MEMORY)
    return made


def task(number: int, state: str = "a", **changes: object) -> Task:
    values: dict[str, object] = {"kind": "evaluate", "need": NEED, **changes}
    return Task(number, state=state, **values)  # type: ignore[arg-type]


def placed(made: Scheduler, now: float) -> list[tuple[int, int]]:
    return [(each.task.number, each.device) for each in made.place(now)]


def resident(made: Scheduler, device: int, state: str, number: int = -1) -> None:
    """Have a state on a device, and nothing running."""
    made.reported(device, {**dict.fromkeys(made.resident(device), NEED.held), state: NEED.held})


def test_a_device_does_one_operation_at_a_time():
    made = scheduler(1)
    for number, kind in enumerate(["evaluate", "sanitize", "instructions"]):
        made.submit(task(number, kind=kind))
    assert len(placed(made, 0.0)) == 1
    assert placed(made, 100.0) == []


def test_a_task_goes_where_its_state_is():
    made = scheduler(3)
    resident(made, 2, "a")
    made.submit(task(0))
    assert placed(made, 0.0) == [(0, 2)]


def test_states_spread_over_empty_devices():
    made = scheduler(2)
    for number, state in enumerate("abab"):
        made.submit(task(number, state))
    assert placed(made, 0.0) == [(0, 0), (1, 1)]
    made.finished(0, 5.0)
    assert placed(made, 5.0) == [(2, 0)]


def test_waiting_for_the_state_beats_building_it_unless_the_queue_is_longer():
    """Building takes 4 s and an evaluation 1 s: the fifth in a row is better off elsewhere."""
    made = scheduler(2)
    resident(made, 0, "a")
    for number in range(7):
        made.submit(task(number))
    assert placed(made, 0.0) == [(0, 0), (5, 1)]
    assert made.queued(0.0) == {0: 5, 1: 0}


def test_moves_when_the_device_is_busy_longer_than_building_takes():
    made = scheduler(2, learned(evaluate_s=6.0, build_s=4.0))
    resident(made, 0, "a")
    made.submit(task(0))
    made.submit(task(1))
    assert placed(made, 0.0) == [(0, 0), (1, 1)]


def test_what_never_ends_is_not_waited_for():
    """Expected to take 1 s: soon after that the end seems near, and after a while it does not."""
    made = scheduler(2)
    resident(made, 0, "a")
    made.submit(task(0))
    made.submit(task(1))
    assert placed(made, 0.0) == [(0, 0)]
    assert placed(made, 4.0) == []
    assert placed(made, 5.5) == [(1, 1)]


def test_continuing_before_beginning_and_interactive_before_bulk():
    made = scheduler(1)
    made.submit(task(0, priority="bulk"))
    made.submit(task(1, priority="bulk", kind="sanitize"))
    made.submit(task(2))
    made.submit(task(3, kind="instructions"))
    order = []
    for now in range(4):
        order += [number for number, _ in placed(made, float(now))]
        made.finished(0, now + 0.5)
    assert order == [3, 2, 1, 0]


def test_bulk_gets_its_turn_beside_endless_interactive_work():
    made = scheduler(1)
    made.submit(task(0, priority="bulk"))
    for number in range(1, OLDEST_EVERY + 2):
        made.submit(task(number))
        ((begun, _),) = placed(made, float(number))
        made.finished(0, number + 0.5)
        if begun == 0:
            break
    assert begun == 0
    assert number <= OLDEST_EVERY


def test_clients_share_device_time_not_operations():
    """One client's operations take three times as long: it gets a third as many."""
    costs = learned(1.0, 0.0, "a")
    for _ in range(3):
        costs.learn("evaluate", "b", 3.0, built=False)
    made = scheduler(1, costs)
    for number in range(100):
        made.submit(task(number, "ab"[number % 2], client="ab"[number % 2]))
    begun: Counter[str] = Counter()
    now = 0.0
    for _ in range(40):
        ((begin, _),) = made.place(now)
        begun[begin.client] += 1
        now += 1.0 if begin.client == "a" else 3.0
        made.finished(0, now)
    assert begun["a"] / begun["b"] == pytest.approx(3, rel=0.35)


def test_what_an_operation_really_took_is_charged():
    """Of one workload, so that the same is expected: but this client's candidates hang."""
    made = scheduler(1)
    for number in range(40):
        made.submit(task(number, client=("hangs", "quick")[number % 2]))
    begun: Counter[str] = Counter()
    now = 0.0
    for _ in range(16):
        ((begin, _),) = made.place(now)
        begun[begin.client] += 1
        now += 10.0 if begin.client == "hangs" else 1.0
        made.finished(0, now)
    assert begun["quick"] > 2 * begun["hangs"]


def test_a_flood_delays_a_newcomer_by_one_operation():
    made = scheduler(1)
    for number in range(1000):
        made.submit(task(number, client="flood"))
    made.place(0.0)
    made.submit(task(1000, client="person"))
    made.finished(0, 1.0)
    assert placed(made, 1.0) == [(1000, 0)]


def test_being_away_earns_nothing():
    made = scheduler(1)
    for number in range(20):
        made.submit(task(number, client="busy"))
        made.place(float(number))
        made.finished(0, number + 1.0)
    for number in range(20, 40):
        made.submit(task(number, client=("busy", "new")[number % 2]))
    begun: Counter[str] = Counter()
    for now in range(20, 28):
        ((begin, _),) = made.place(float(now))
        begun[begin.client] += 1
        made.finished(0, now + 1.0)
    assert abs(begun["busy"] - begun["new"]) <= 2


def test_clients_that_are_gone_are_forgotten():
    made = scheduler(1)
    for number in range(1500):
        made.submit(task(number, client=f"client {number}"))
        made.place(float(number))
        made.finished(0, number + 0.5)
    assert len(made._served) <= 1001


def test_memory_is_admitted_in_bytes():
    made = Scheduler(learned())
    made.open(0, 16 * GIB)
    made.open(1, MEMORY)
    made.submit(task(0))
    made.submit(task(1, "b", need=Need(100 * GIB, 0)))
    assert placed(made, 0.0) == [(0, 1)], "10 + 4 GiB and the processes do not fit 16 GiB"
    made.finished(1, 1.0)
    assert placed(made, 1.0) == [], "nobody has 100 GiB"
    assert made.admitted_by(NEED) == (1,)
    assert made.admitted_by(Need(100 * GIB, 0)) == ()


def test_a_new_state_goes_where_it_drives_nothing_wanted_out():
    made = scheduler(2)
    made.reported(0, {"a": 20 * GIB, "b": 20 * GIB})
    made.reported(1, {"c": 24 * GIB, "d": 20 * GIB})
    made.submit(task(0, "e"))
    made.submit(task(1, "a", client="other"))
    assert dict(placed(made, 0.0))[0] == 1
    assert made.resident(1) == ("d", "e")


def test_given_back_it_is_done_elsewhere_if_there_is_an_elsewhere():
    made = scheduler(2)
    resident(made, 0, "a")
    made.submit(task(0))
    made.place(0.0)
    made.give_back(0, 1.0, avoid=True)
    assert placed(made, 1.0) == [(0, 1)]
    made.give_back(1, 2.0, avoid=True)
    made.shut(1)
    assert placed(made, 2.0) == [(0, 0)]


def test_one_that_nobody_can_do_does_not_hold_the_turn_of_the_oldest():
    made = scheduler(1)
    made.submit(task(0, need=Need(100 * GIB, 0)))
    made.submit(task(1, priority="bulk"))
    begun = set()
    for number in range(2, 2 + OLDEST_EVERY):
        made.submit(task(number))
        begun |= {number for number, _ in placed(made, float(number))}
        made.finished(0, number + 0.5)
    assert 1 in begun


def test_a_number_is_used_once():
    made = scheduler(1)
    made.submit(task(0))
    with pytest.raises(ValueError, match="task 0"):
        made.submit(task(0))
    assert made.withdraw(0) is not None
    assert made.withdraw(0) is None
    made.submit(task(0))
    assert placed(made, 0.0) == [(0, 0)]
    assert made.withdraw(0) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "place", "finish", "finish", "give_back", "shut", "open", "withdraw"]),
        st.integers(0, 11),
    ),
    max_size=80,
)


@settings(max_examples=60)
@given(st.integers(1, 4), STEPS)
def test_nothing_is_lost_or_done_twice(devices: int, steps: list[tuple[str, int]]):
    made, numbers = scheduler(devices), count()
    waiting: set[int] = set()
    running: dict[int, int] = {}
    submitted, ended, now = set(), Counter[int](), 0.0

    def place() -> None:
        for number, device in placed(made, now):
            assert number in waiting
            assert device not in running, "one operation per device"
            waiting.remove(number)
            running[device] = number

    for step, value in steps:
        now += 0.25
        if step == "submit":
            number = next(numbers)
            made.submit(
                task(
                    number,
                    "abcd"[value % 4],
                    client="xyz"[value % 3],
                    priority="bulk" if value % 5 == 0 else "interactive",
                    kind="sanitize" if value % 7 == 0 else "evaluate",
                )
            )
            submitted.add(number)
            waiting.add(number)
        elif step == "place":
            place()
        elif step == "withdraw" and made.withdraw(value):
            waiting.remove(value)
            ended[value] += 1
        elif step in ("shut", "open"):
            device = value % devices
            if step == "shut":
                made.shut(device)
            else:
                made.open(device, MEMORY)
        elif step in ("finish", "give_back") and running:
            device = sorted(running)[value % len(running)]
            number = running.pop(device)
            if step == "finish":
                assert made.finished(device, now).number == number
                ended[number] += 1
            else:
                assert made.give_back(device, now, avoid=value % 2 == 0).number == number
                waiting.add(number)
        assert {each.number for each in made.waiting()} == waiting
    for device in range(devices):
        made.open(device, MEMORY)
    for _ in range(len(submitted) * 2 + devices):
        now += 1.0
        place()
        for device, number in list(running.items()):
            made.finished(device, now)
            ended[number] += 1
            del running[device]
    assert ended == Counter(submitted)


@settings(max_examples=40)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12),
    st.lists(st.sampled_from(["sanitize", "evaluate"]), min_size=1, max_size=5),
)
def test_nobody_starves(devices: int, patient: list[tuple[str, bool]], kinds: list[str]):
    """Beside endless interactive work of ever new clients, everybody is served within a bound that who came before
    sets."""
    made, numbers = scheduler(devices, learned(build_s=1.0)), count()
    for state, bulk in patient:
        made.submit(task(next(numbers), state, client="patient", priority="bulk" if bulk else "interactive"))
    left, begun = set(range(len(patient))), 0
    # Two rounds of the devices are what the oldest may wait for the device that it is better off on.
    bound = len(patient) * (OLDEST_EVERY + 2 * devices) + OLDEST_EVERY
    for step in range(4 * bound):
        for _ in range(devices):
            number = next(numbers)
            made.submit(task(number, "d", client=f"new{number}", kind=kinds[number % len(kinds)]))
        for number, _ in placed(made, float(step)):
            left.discard(number)
            begun += 1
        if not left:
            break
        for device in range(devices):
            if made.running(device):
                made.finished(device, step + 0.9)
    assert not left
    assert begun <= bound + devices


def test_checks_that_no_number_waits_for_give_way_to_all_else_of_their_priority():
    made = scheduler(1)
    for number, (kind, priority) in enumerate(
        [("check", "bulk"), ("check", "interactive"), ("evaluate", "bulk"), ("evaluate", "interactive")]
    ):
        made.submit(task(number, kind=kind, priority=priority))
    order = []
    for now in range(4):
        order += [number for number, _ in placed(made, float(now))]
        made.finished(0, now + 0.5)
    assert order == [3, 1, 2, 0]


def test_a_newcomer_of_bulk_work_does_not_pay_for_what_interactive_clients_used():
    """One client computes in the background beside interactive work for long; another one joins it there."""
    made, numbers = scheduler(1), count()
    for _ in range(400):
        made.submit(task(next(numbers), client="old", priority="bulk"))
    for now in range(200):
        made.submit(task(next(numbers), client="person"))
        made.place(float(now))
        made.finished(0, now + 1.0)
    for _ in range(20):
        made.submit(task(next(numbers), client="new", priority="bulk"))
    begun: Counter[str] = Counter()
    while True:
        ((begin, _),) = made.place(float(now := now + 1))
        made.finished(0, now + 1.0)
        begun[begin.client] += begin.priority == "bulk"
        if sum(begun.values()) == 20:
            break
    assert begun["new"] >= 8, begun
