"""Which calls are checked: the part of an evaluation that needs no device."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.profiler import defences
from ptxbench.profiler.evaluation import choose_checks
from ptxbench.profiler.state import TIMED_CHECKS

ROOT = Path(__file__).parents[3]


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


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Switches a defence off, until the test ends."""
    return lambda name: monkeypatch.setattr(defences, "_off", frozenset(defences.known([name])))


def test_without_fresh_inputs_all_calls_have_one_draw(without: Callable[[str], None]) -> None:
    without("fresh_inputs")
    chosen = choose_checks(state())
    used = [first for first, _ in chosen] + [draw for _, timed in chosen for draw in timed.values()]
    assert set(map(str, used)) == {"draw 0"}
    assert sum(len(timed) for _, timed in chosen) == 9


def test_without_separate_seeds_a_trial_repeats_its_first_draw(without: Callable[[str], None]) -> None:
    without("separate_seeds")
    chosen = choose_checks(state())
    assert all(draw == first for first, timed in chosen for draw in timed.values())
    assert len({first for first, _ in chosen}) == 3


def test_without_timed_checks_no_iteration_is_checked(without: Callable[[str], None]) -> None:
    without("timed_checks")
    assert [timed for _, timed in choose_checks(state())] == [{}, {}, {}]


@pytest.mark.parametrize(("trials", "iterations"), [(3, 2), (1, 1)])
def test_a_suite_with_few_iterations_has_all_of_them_checked(trials: int, iterations: int) -> None:
    chosen = choose_checks(state(trials, iterations))
    assert [sorted(timed) for _, timed in chosen] == [list(range(iterations))] * trials
    used = [first for first, _ in chosen] + [draw for _, timed in chosen for draw in timed.values()]
    assert len(set(used)) == len(used)


def test_how_likely_a_cheat_that_moves_the_latency_escapes_is_what_the_docs_say() -> None:
    """A median of three medians moves with 26 of 50 iterations in two of the three trials: with 52 of all 150."""
    positions, checks, cheats = 3 * 50, 3 * TIMED_CHECKS, 2 * 26
    escapes = math.comb(positions - cheats, checks) / math.comb(positions, checks)
    assert f"{escapes:.1%}" == "1.9%"
    for page in ("architecture.md", "limitations.md"):
        assert "52 of the 150" in (ROOT / "docs" / page).read_text()
        assert "1.9%" in (ROOT / "docs" / page).read_text()
