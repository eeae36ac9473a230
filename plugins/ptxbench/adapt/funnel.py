"""How many turns are left after each step from the runs to the dataset, and why the others left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import Field

from ptxbench.records import Record
from ptxbench.records.base import Count

T = TypeVar("T")


class Step(Record):
    """One row."""

    step: str
    """What was asked of the records, in words."""
    dropped: Count
    left: Count
    reasons: dict[str, Count] = Field(default_factory=dict)
    """Why how many left."""


class Funnel:
    """The steps so far. Each is told what there was and says what is left."""

    def __init__(self, step: str, found: int) -> None:
        self._steps = [Step(step=step, dropped=0, left=found)]

    @property
    def steps(self) -> tuple[Step, ...]:
        """In order."""
        return tuple(self._steps)

    def keep(self, step: str, items: Iterable[T], why_not: Callable[[T], str]) -> list[T]:
        """The items of which ``why_not`` says nothing; it gives the reason of each that leaves."""
        entries = [(item, why_not(item)) for item in items]
        kept = [item for item, reason in entries if not reason]
        self._add(step, Counter(reason for _, reason in entries if reason), len(kept))
        return kept

    def narrowed(self, step: str, before: Iterable[T], after: list[T], reason: str) -> list[T]:
        """The same where what is left was found otherwise; every item that left did so for one ``reason``."""
        dropped = sum(1 for _ in before) - len(after)
        self._add(step, Counter({reason: dropped} if dropped else {}), len(after))
        return after

    def _add(self, step: str, reasons: Counter[str], left: int) -> None:
        self._steps.append(Step(step=step, dropped=reasons.total(), left=left, reasons=dict(sorted(reasons.items()))))


def funnel_table(steps: Iterable[Step]) -> list[str]:
    """As a table in Markdown."""
    rows = [f"| {one.step} | {one.dropped or ''} | {one.left} | {_told(one.reasons)} |" for one in steps]
    return ["| step | left out | stay | why left out |", "|---|---:|---:|---|", *rows]


def funnel_lines(steps: Iterable[Step]) -> list[str]:
    """For a terminal."""
    rows = list(steps)
    width = max(len(one.step) for one in rows)
    return [
        f"{one.step:<{width}}  {-one.dropped or '':>7}  {one.left:>7}  {_told(one.reasons)}".rstrip() for one in rows
    ]


def _told(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
