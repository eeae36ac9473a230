"""Which calls are checked: the part of an evaluation that needs no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ptxbench.profiler.evaluation import choose_checks
from ptxbench.profiler.state import TIMED_CHECKS


def state(trials: int = 3, iterations: int = 50) -> Any:
    case = SimpleNamespace(trials=trials, iterations=iterations)
    return SimpleNamespace(case=case, checked=[f"draw {index}" for index in range(trials * (1 + TIMED_CHECKS))])


def test_every_draw_is_used_once() -> None:
    subject = state()
    chosen = choose_checks(subject)
    assert len(chosen) == 3
    used = [first for first, _ in chosen] + [draw for _, timed in chosen for draw in timed.values()]
    assert sorted(used) == sorted(subject.checked)
    assert all(0 <= place < 50 for _, timed in chosen for place in timed)


def test_neither_number_nor_place_nor_draw_can_be_foreseen() -> None:
    many = [choose_checks(state()) for _ in range(200)]
    assert {len(timed) for chosen in many for _, timed in chosen} >= {1, 2, 3, 4, 5}
    assert {place for chosen in many for _, timed in chosen for place in timed} == set(range(50))
    assert {str(chosen[0][0]) for chosen in many} == {"draw 0", "draw 1", "draw 2"}
    assert len({draw for chosen in many for draw in chosen[0][1].values()}) == 9
