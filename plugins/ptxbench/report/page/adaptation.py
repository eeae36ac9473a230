"""A base model and what was made of it, side by side: what figures and table of the adaptation start from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ptxbench.report.cell import AtLimit, Rate
from ptxbench.report.dataset import Manifest
from ptxbench.report.document import TurnRow
from ptxbench.report.page.board import Board, Row, Workload, label_of
from ptxbench.report.sources import Source

LANGUAGE = "cuda"
"""Of every kernel that a report tells of so far."""
HELD_OUT = ("case", "arch", "language")
"""In what an evaluation can differ from the training, in the order in which it is told."""


class Side(NamedTuple):
    """One source."""

    name: str
    rows: tuple[Row, ...]

    @property
    def turns(self) -> tuple[TurnRow, ...]:
        """All turns that have a record."""
        return tuple(turn for row in self.rows for turn in row.turns)

    def of_workload(self, workload: Workload) -> tuple[Row, ...]:
        """The cells of one workload, one for each model."""
        return tuple(row for row in self.rows if row.workload == workload)


class Adapted(NamedTuple):
    """An adapted model, with what it was trained on."""

    side: Side
    manifest: Manifest

    def held_out(self, workload: Workload) -> tuple[str, ...]:
        """In which of HELD_OUT the training had nothing of this workload; empty where it had all."""
        manifest = self.manifest
        known = {
            "case": workload.case in manifest.cases,
            # A case that was trained on another architecture alone is held out on this one.
            "arch": workload.arch in (manifest.archs_of(workload.case) or manifest.archs),
            "language": LANGUAGE in manifest.languages,
        }
        return tuple(name for name in HELD_OUT if not known[name])


class Adaptation(NamedTuple):
    """The base model and its adapted ones."""

    base: Side
    adapted: tuple[Adapted, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """All of them, the base model first."""
        return (self.base, *(one.side for one in self.adapted))


class Pooled(NamedTuple):
    """Turns of several cells taken together."""

    hits: int
    turns: int

    @property
    def percent(self) -> float:
        """0..100; 0 of no turns."""
        return 100 * self.hits / self.turns if self.turns else 0.0


class Transfer(NamedTuple):
    """Base and adapted model on the same workloads, at the most turns that both were given."""

    workloads: tuple[Workload, ...]
    correct: tuple[Pooled, Pooled]
    """Of the base model, and of the adapted one."""
    target: tuple[Pooled, Pooled]


def make_adaptation(board: Board, sources: Sequence[Source], manifests: Sequence[Manifest]) -> Adaptation:
    """The sides of ``board``: the first source is the base model, of the others each has its manifest."""
    sides = []
    for source in sources:
        labels = {label_of(source, cell.model, len(sources)) for cell in source.report.cells}
        sides.append(Side(source.name, tuple(row for row in board.rows if row.label in labels)))
    base, *others = sides
    return Adaptation(base, tuple(Adapted(*pair) for pair in zip(others, manifests, strict=True)))


def transfers(base: Side, adapted: Adapted) -> list[Transfer]:
    """One for each workload that both sides have, in the base model's order."""
    shared = dict.fromkeys(row.workload for row in base.rows)
    return [found for workload in shared if (found := _transfer(base, adapted.side, workload)) is not None]


def pooled(found: Iterable[Transfer]) -> Transfer:
    """Several workloads as one: turns are added up, so that each weighs as many turns as it has."""
    all_of = list(found)
    return Transfer(
        tuple(workload for one in all_of for workload in one.workloads),
        (_sum(one.correct[0] for one in all_of), _sum(one.correct[1] for one in all_of)),
        (_sum(one.target[0] for one in all_of), _sum(one.target[1] for one in all_of)),
    )


def _transfer(base: Side, adapted: Side, workload: Workload) -> Transfer | None:
    before, after = base.of_workload(workload), adapted.of_workload(workload)
    limits = [{at.limit for at in row.cell.limits} for row in (*before, *after)]
    common = set.intersection(*limits) if before and after else set()
    if not common:
        return None
    limit = max(common)
    one, other = ([_at(row, limit) for row in rows] for rows in (before, after))
    return Transfer(
        (workload,),
        (_pool(at.correct for at in one), _pool(at.correct for at in other)),
        (_pool(at.target for at in one), _pool(at.target for at in other)),
    )


def _at(row: Row, limit: int) -> AtLimit:
    return next(at for at in row.cell.limits if at.limit == limit)


def _pool(rates: Iterable[Rate]) -> Pooled:
    return _sum(Pooled(rate.hits, rate.turns) for rate in rates)


def _sum(parts: Iterable[Pooled]) -> Pooled:
    counts = list(parts)
    return Pooled(sum(one.hits for one in counts), sum(one.turns for one in counts))
