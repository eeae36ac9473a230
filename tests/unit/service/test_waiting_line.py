from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.service.waiting_line import WaitingLine


def drained(line: WaitingLine[str]) -> list[str]:
    found = []
    while (item := line.take()) is not None:
        found.append(item)
    return found


def test_clients_are_served_in_turn_however_much_one_asks_for() -> None:
    line: WaitingLine[str] = WaitingLine()
    for number in range(5):
        line.put(f"greedy{number}", "greedy", "bulk")
    line.put("modest0", "modest", "bulk")
    line.put("modest1", "modest", "bulk")
    assert drained(line)[:4] == ["greedy0", "modest0", "greedy1", "modest1"]


def test_interactive_comes_before_bulk() -> None:
    line: WaitingLine[str] = WaitingLine()
    line.put("bulk", "a", "bulk")
    line.put("now", "b", "interactive")
    assert line.lengths() == {"interactive": 1, "bulk": 1}
    assert drained(line) == ["now", "bulk"]


def test_what_is_put_back_is_next() -> None:
    line: WaitingLine[str] = WaitingLine()
    for name in ("a0", "a1"):
        line.put(name, "a", "bulk")
    line.put("b0", "b", "bulk")
    first = line.take()
    assert first == "a0"
    line.put_back(first, "a", "bulk")
    assert drained(line) == ["a0", "b0", "a1"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["interactive", "bulk"]), st.booleans()), max_size=60)
)
def test_nothing_is_lost_doubled_or_overtaken_by_its_own_client(steps: list[tuple[str, str, bool]]) -> None:
    line: WaitingLine[tuple[str, str, int]] = WaitingLine()
    put, taken = [], []
    for number, (client, priority, take) in enumerate(steps):
        line.put((client, priority, number), client, priority)
        put.append((client, priority, number))
        if take:
            taken.append(line.take())
    while (item := line.take()) is not None:
        taken.append(item)
    assert sorted(put) == sorted(item for item in taken if item is not None)
    assert len(line) == 0
    orders = defaultdict(list)
    for item in taken:
        assert item is not None
        orders[item[:2]].append(item[2])
    assert all(order == sorted(order) for order in orders.values())
