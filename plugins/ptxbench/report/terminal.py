"""The table at the end of a session: plain text, one section per model and architecture.

Columns come in groups. A section that is wider than the terminal continues below itself with the next groups, so
nothing is cut but very long case names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from ptxbench.plain import visible
from ptxbench.report.cell import AtLimit, Cell, Rate
from ptxbench.report.notes import notes
from ptxbench.verdict.metrics import DASH, format_rate, format_speedup

MIN_WIDTH = 60
"""Narrower terminals wrap our lines themselves."""
UNKNOWN = "?"
"""Nothing counted, and an unknown keeps that from meaning zero."""
ELLIPSIS = ".."

_GAP, _GROUP_GAP = " ", "  "


class _Group(NamedTuple):
    """Columns under one title. ``rows`` holds one text per cell and column."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def widths(self) -> tuple[int, ...]:
        widths = [max(map(len, column)) for column in zip(self.headers, *self.rows, strict=True)]
        # A title wider than its columns stretches the first one.
        widths[0] += max(0, len(self.title) - sum(widths) - len(_GAP) * (len(widths) - 1))
        return tuple(widths)

    @property
    def width(self) -> int:
        return sum(self.widths) + len(_GAP) * (len(self.widths) - 1)

    def line(self, texts: Sequence[str]) -> str:
        return _GAP.join(text.rjust(width) for text, width in zip(texts, self.widths, strict=True))


def render(cells: Sequence[Cell], width: int) -> list[str]:
    """Return the lines of the report for a terminal ``width`` columns wide, without line ends."""
    width = max(width, MIN_WIDTH)
    lines: list[str] = []
    for (model, arch), section in groupby(cells, key=lambda cell: (cell.model, cell.arch)):
        rows = list(section)
        if lines:
            lines.append("")
        lines += [shorten(visible(f"{model} on {arch}"), width), *_table(rows, width)]
        lines += map(visible, notes(rows, width))
    return lines


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters; a cut keeps both ends, where names differ."""
    if len(text) <= width:
        return text
    kept = width - len(ELLIPSIS)
    return text[: kept - kept // 2] + ELLIPSIS + text[len(text) - kept // 2 :]


def rate_text(rate: Rate) -> str:
    """Return a rate in percent; a dash for zero, a question mark where an unknown keeps zero from being known."""
    if rate.hits == 0 and (rate.unknown > 0 or rate.turns == 0):
        return UNKNOWN
    return format_rate(rate.hits, rate.turns)


def best_text(at: AtLimit, *, inst: bool) -> str:
    """Return a best speedup, of turns with the target's instructions or any; a question mark as for rates."""
    speedup, rate = (at.target_best_speedup, at.target) if inst else (at.best_speedup, at.correct)
    if speedup is not None:
        return format_speedup(speedup)
    # A correct turn of unknown speed is unknown in Fast_p alone.
    fast = [found.inst if inst else found.any for found in at.fast_p[:1]]
    return UNKNOWN if rate.turns == 0 or any(found.unknown for found in (rate, *fast)) else DASH


FASTEST = ("ms", "95%", "%SOL", "useful")
"""Columns of ``fastest_texts``."""


def fastest_texts(cell: Cell) -> tuple[str, ...]:
    """Return latency and interval (milliseconds), share of the roofline and useful share of the best speedup's turn."""
    fastest = cell.fastest
    if fastest is None:
        return (best_text(cell.limits[-1], inst=False) if cell.limits[-1].best_speedup is None else UNKNOWN,) * 4
    interval = fastest.latency_interval_ms
    return (
        _ms(fastest.latency_ms),
        UNKNOWN if interval is None else f"{_ms(interval.low)}-{_ms(interval.high)}",
        UNKNOWN if fastest.roofline_share is None else f"{100 * fastest.roofline_share:.1f}",
        UNKNOWN if fastest.useful_share is None else f"{fastest.useful_share:.2f}",
    )


def _ms(value: float) -> str:
    """Four digits: the fourth is what a latency repeats to."""
    return f"{value:#.4g}" if value < 1_000 else f"{value:.0f}"


def _table(cells: Sequence[Cell], width: int) -> list[str]:
    names = [shorten(visible(cell.case), width // 3) for cell in cells]
    margin = max(map(len, [*names, "case"]))
    lines: list[str] = []
    for block in _blocks(_groups(cells), width - margin):
        rows = [("", [group.title.rjust(group.width) for group in block])]
        rows.append(("case", [group.line(group.headers) for group in block]))
        rows += [(name, [group.line(group.rows[index]) for group in block]) for index, name in enumerate(names)]
        lines += [_GROUP_GAP.join([name.ljust(margin), *texts]).rstrip() for name, texts in rows]
    return lines


def _blocks(groups: Sequence[_Group], width: int) -> list[list[_Group]]:
    """Distribute the groups over as few tables as fit ``width``, in order."""
    blocks: list[list[_Group]] = []
    left = 0
    for group in groups:
        needed = len(_GROUP_GAP) + group.width
        if not blocks or needed > left:
            blocks.append([])
            left = width
        blocks[-1].append(group)
        left -= needed
    return blocks


def _groups(cells: Sequence[Cell]) -> list[_Group]:
    limits = sorted({at.limit for cell in cells for at in cell.limits})
    headers = tuple(f"<={limit}" for limit in limits)
    by_limit = [{at.limit: at for at in cell.limits} for cell in cells]
    last = [cell.limits[-1] for cell in cells]
    thresholds = tuple(str(fast.p) for fast in last[0].fast_p)

    def over_limits(rate: Callable[[AtLimit], Rate]) -> tuple[tuple[str, ...], ...]:
        # A cell that was given fewer turns than its neighbours has nothing to say at a higher limit.
        return tuple(tuple(rate_text(rate(row[at])) if at in row else "" for at in limits) for row in by_limit)

    return [
        _Group("correct %", headers, over_limits(lambda at: at.correct)),
        _Group("target %", headers, over_limits(lambda at: at.target)),
        _Group(
            "best speedup",
            ("any", "target"),
            tuple((best_text(at, inst=False), best_text(at, inst=True)) for at in last),
        ),
        _Group("fast_p %", thresholds, tuple(tuple(rate_text(fast.any) for fast in at.fast_p) for at in last)),
        _Group("fast_p.inst %", thresholds, tuple(tuple(rate_text(fast.inst) for fast in at.fast_p) for at in last)),
        _Group("fastest turn", FASTEST, tuple(map(fastest_texts, cells))),
        _Group("turns", ("N", "unknown", "infra"), tuple(map(_turns, cells))),
    ]


def _turns(cell: Cell) -> tuple[str, str, str]:
    unknown = cell.unknown_outcomes + cell.unknown_targets
    return (str(cell.limits[-1].correct.turns), str(unknown or DASH), str(cell.excluded or DASH))
