"""The summary as HTML. Every text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from ptxbench.plain import visible
from ptxbench.report.cell import AtLimit, Rate
from ptxbench.report.notes import notes
from ptxbench.report.page.board import Board, Row
from ptxbench.report.sources import Source
from ptxbench.report.terminal import FASTEST, best_text, fastest_texts, rate_text

_WIDE = 100_000
"""Notes are not wrapped: the page does that."""


class _Column(NamedTuple):
    group: str
    title: str
    text: Callable[[Row], str]
    hint: Callable[[Row], str]


def text(value: str) -> str:
    """``value`` as the content of an element or an attribute."""
    return escape(visible(value), quote=True)


def summary_table(board: Board) -> str:
    """One row per cell. The name of the workload is a button that has the viewer show the cell."""
    columns = _columns(board)
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    tops = "".join(f'<th scope="colgroup" colspan="{span}">{text(group)}</th>' for group, span in groups)
    heads = "".join(f'<th scope="col">{text(column.title)}</th>' for column in columns)
    body = "".join(_row(number, row, columns, board.rows) for number, row in enumerate(board.rows))
    return (
        f'<table class="summary"><thead><tr><th rowspan="2" scope="col" class="name">workload</th>{tops}</tr>'
        f"<tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(number: int, row: Row, columns: Sequence[_Column], rows: Sequence[Row]) -> str:
    begins = number == 0 or rows[number - 1].label != row.label or rows[number - 1].cell.arch != row.cell.arch
    title = ""
    if begins:
        span = len(columns) + 1
        title = (
            f'<tr class="group"><th colspan="{span}" scope="rowgroup"><span>{text(row.label)} on '
            f"{text(row.cell.arch)}</span></th></tr>"
        )
    cells = "".join(
        f'<td title="{text(column.hint(row))}">{text(column.text(row))}</td>'
        if column.hint(row)
        else f"<td>{text(column.text(row))}</td>"
        for column in columns
    )
    return (
        f'{title}<tr><th scope="row" class="name"><button type="button" class="link" data-cell="{number}">'
        f"{text(row.cell.case)}</button></th>{cells}</tr>"
    )


def _columns(board: Board) -> list[_Column]:
    limits = sorted({at.limit for row in board.rows for at in row.cell.limits})
    thresholds = [fast.p for fast in board.rows[0].cell.limits[-1].fast_p] if board.rows else []
    columns = [_rate("correct %", f"≤{limit}", _at(limit, lambda at: at.correct)) for limit in limits]
    columns += [_rate("target %", f"≤{limit}", _at(limit, lambda at: at.target)) for limit in limits]
    columns.append(_Column("best speedup", "any", lambda row: _best(row, inst=False), _nothing))
    columns.append(_Column("best speedup", "target", lambda row: _best(row, inst=True), _nothing))
    columns += [_rate("fast_p %", str(p), _fast(number, inst=False)) for number, p in enumerate(thresholds)]
    columns += [_rate("fast_p.inst %", str(p), _fast(number, inst=True)) for number, p in enumerate(thresholds)]
    columns += [_Column("fastest turn", title, _fastest(number), _fastest_turn) for number, title in enumerate(FASTEST)]
    columns.append(_Column("turns", "N", lambda row: str(row.cell.limits[-1].correct.turns), _nothing))
    columns.append(_Column("turns", "unknown", _unknown, _nothing))
    columns.append(_Column("turns", "infra", lambda row: str(row.cell.excluded or "-"), _nothing))
    return columns


def _nothing(row: Row) -> str:
    del row
    return ""


def _rate(group: str, title: str, find: Callable[[Row], Rate | None]) -> _Column:
    def shown(row: Row) -> str:
        rate = find(row)
        return "" if rate is None else rate_text(rate)

    def hint(row: Row) -> str:
        rate = find(row)
        return "" if rate is None else _hint(rate)

    return _Column(group, title, shown, hint)


def _hint(rate: Rate) -> str:
    parts = [f"{rate.hits} of {rate.turns} turns"]
    interval = getattr(rate, "interval", None)
    if interval is not None:
        parts.append(f"interval {100 * interval.low:.1f} to {100 * interval.high:.1f}")
    if rate.unneeded:
        parts.append(f"{100 * rate.value_of_needed:.1f} without {rate.unneeded} turns after the target was reached")
    if rate.unknown:
        parts.append(f"{rate.unknown} unknown")
    return ", ".join(parts)


def _at(limit: int, pick: Callable[[AtLimit], Rate]) -> Callable[[Row], Rate | None]:
    return lambda row: next((pick(at) for at in row.cell.limits if at.limit == limit), None)


def _fast(number: int, *, inst: bool) -> Callable[[Row], Rate | None]:
    def find(row: Row) -> Rate | None:
        found = row.cell.limits[-1].fast_p
        if number >= len(found):
            return None
        return found[number].inst if inst else found[number].any

    return find


def _best(row: Row, *, inst: bool) -> str:
    return best_text(row.cell.limits[-1], inst=inst)


def _fastest(number: int) -> Callable[[Row], str]:
    return lambda row: fastest_texts(row.cell)[number]


def _fastest_turn(row: Row) -> str:
    return "" if row.cell.fastest is None else row.cell.fastest.turn


def _unknown(row: Row) -> str:
    return str(row.cell.unknown_outcomes + row.cell.unknown_targets or "-")


def remarks(sources: Iterable[Source]) -> str:
    """What stands below the table: where the numbers come from, and what they leave out."""
    found: dict[str, None] = {}
    for source in sources:
        for key in dict.fromkeys((cell.model, cell.arch) for cell in source.report.cells):
            cells = [cell for cell in source.report.cells if (cell.model, cell.arch) == key]
            found |= dict.fromkeys(f"{key[0]}: {note}" for note in notes(cells, _WIDE)[:-1])
        found |= dict.fromkeys(source.notes)
        # The legend, which is the same for all.
        if source.report.cells:
            found |= dict.fromkeys(notes(source.report.cells[:1], _WIDE)[-1:])
    return f"<ul>{''.join(f'<li>{text(note)}</li>' for note in found)}</ul>"
