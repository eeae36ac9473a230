"""Funnels: what is left after each step, and how that is told."""

from __future__ import annotations

from ptxbench.adapt.funnel import Funnel, funnel_lines, funnel_table


def funnel() -> Funnel:
    made = Funnel("numbers", 10)
    odd = made.keep("odd", range(10), lambda one: "" if one % 2 else "even")
    made.keep("small", odd, lambda one: "large" if one > 6 else "")
    made.narrowed("first two", [1, 3, 5], [1, 3], "beyond the cap")
    return made


def test_each_step_says_why_how_many_left():
    found = [(one.step, one.dropped, one.left, one.reasons) for one in funnel().steps]
    assert found == [
        ("numbers", 0, 10, {}),
        ("odd", 5, 5, {"even": 5}),
        ("small", 2, 3, {"large": 2}),
        ("first two", 1, 2, {"beyond the cap": 1}),
    ]


def test_as_a_table_and_on_a_terminal():
    assert funnel_table(funnel().steps)[2:4] == ["| numbers |  | 10 |  |", "| odd | 5 | 5 | 5 even |"]
    lines = funnel_lines(funnel().steps)
    assert lines[0].split() == ["numbers", "10"]
    assert lines[3].split(maxsplit=4) == ["first", "two", "-1", "2", "1 beyond the cap"]
