"""What a gate says, as values. ``str()`` writes an expression that ``parse`` reads back to an equal one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

MetricName = Literal["correct", "target", "best_speedup", "fast_p"]
Operator = Literal[">=", "<=", "==", "!=", ">", "<"]

METRICS: tuple[MetricName, ...] = ("correct", "target", "best_speedup", "fast_p")
OPERATORS: tuple[Operator, ...] = (">=", "<=", "==", "!=", ">", "<")
"""Longer ones first, as they are looked for."""
FILTERS = ("model", "case", "arch")

BARE_GLOB = re.compile(r"[A-Za-z0-9_.*?\[\]!:/@+%~=-]+")
"""A glob that needs no quotes."""


@dataclass(frozen=True)
class Number:
    """A non-negative decimal number, perhaps in percent."""

    digits: Decimal
    percent: bool = False

    @property
    def value(self) -> Decimal:
        """The number itself: 0.5 for 50%."""
        return self.digits / 100 if self.percent else self.digits

    def __str__(self) -> str:
        return f"{self.digits:f}{'%' if self.percent else ''}"


@dataclass(frozen=True)
class Metric:
    """A metric of PROTOCOL 5 over the turns of some cells."""

    name: MetricName
    threshold: Decimal | None = None
    """The P of ``fast_p(P)``; None for the others."""
    inst: bool = False
    """Only turns whose target instructions executed."""
    model: tuple[str, ...] = ()
    case: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    """Globs of which a cell matches one; empty where all cells do."""
    turns: int | None = None
    """Turn limit: ``turn < turns`` counts. None: all that the trajectories were given."""
    each: bool = False
    """Every cell by itself, where otherwise the turns of all cells count together."""

    @property
    def is_rate(self) -> bool:
        """Whether its value is a share of turns."""
        return self.name != "best_speedup"

    def __str__(self) -> str:
        parts = [self.name if self.threshold is None else f"{self.name}({self.threshold:f})"]
        if self.inst:
            parts.append("inst")
        parts += [f"{name}({', '.join(map(_quoted, getattr(self, name)))})" for name in FILTERS if getattr(self, name)]
        if self.turns is not None:
            parts.append(f"at({self.turns})")
        if self.each:
            parts.append("each")
        return ".".join(parts)


CORE = (Metric("correct"), Metric("target"), Metric("best_speedup"), Metric("best_speedup", inst=True))
"""What may not fall against an earlier report, and what a comparison always shows."""


@dataclass(frozen=True)
class Comparison:
    """A metric against a number."""

    metric: Metric
    operator: Operator
    bound: Number

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.bound}"


@dataclass(frozen=True)
class AllOf:
    """``and`` between two or more terms."""

    terms: tuple[Gate, ...]

    def __str__(self) -> str:
        return " and ".join(str(term) if isinstance(term, Comparison) else f"({term})" for term in self.terms)


@dataclass(frozen=True)
class AnyOf:
    """``or`` between two or more terms; it binds less than ``and``."""

    terms: tuple[Gate, ...]

    def __str__(self) -> str:
        return " or ".join(f"({term})" if isinstance(term, AnyOf) else str(term) for term in self.terms)


Gate: TypeAlias = Comparison | AllOf | AnyOf


def comparisons(gate: Gate) -> tuple[Comparison, ...]:
    """The comparisons of a gate, from left to right."""
    if isinstance(gate, Comparison):
        return (gate,)
    return tuple(found for term in gate.terms for found in comparisons(term))


def _quoted(glob: str) -> str:
    if BARE_GLOB.fullmatch(glob):
        return glob
    return f"'{glob}'" if '"' in glob else f'"{glob}"'
