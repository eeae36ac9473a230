"""The transfer table as HTML: trained against held-out workloads, before and after. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxbench.report.page.adaptation import HELD_OUT, Adaptation, Adapted, Pooled, Transfer, pooled, transfers
from ptxbench.report.page.table import text
from ptxbench.verdict.metrics import format_rate

_HEADS = ("before", "after", "change")
_WIDTH = 2 + 2 * len(_HEADS)


def transfer_table(adaptation: Adaptation) -> str:
    """For each adapted model: its workloads together by what of them the training knew, then one by one."""
    tops = "".join(f'<th scope="colgroup" colspan="3">{title}</th>' for title in ("correct %", "target %"))
    heads = f'<th scope="col">training knew</th>{"".join(f"""<th scope="col">{head}</th>""" for head in _HEADS * 2)}'
    body = "".join(_model(adaptation, one) for one in adaptation.adapted)
    return (
        f'<table class="summary" id="transfer-table"><thead><tr><th rowspan="2" scope="col" class="name">workload</th>'
        f"<th></th>{tops}</tr><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _model(adaptation: Adaptation, adapted: Adapted) -> str:
    manifest = adapted.manifest
    title = f"{adapted.side.name}, trained on {manifest.name}: {manifest.records:,} records of recipe {manifest.recipe}"
    head = f'<tr class="group"><th colspan="{_WIDTH}" scope="rowgroup"><span>{text(title)}</span></th></tr>'
    found = transfers(adaptation.base, adapted)
    if not found:
        return f'{head}<tr><td colspan="{_WIDTH}">No workload was evaluated before and after.</td></tr>'
    rows = [_row(name, knew, pooled(part), together=True) for name, knew, part in _parts(adapted, found)]
    rows += [
        _row(f"{one.workloads[0].case} on {one.workloads[0].arch}", _knew(adapted, one), one, together=False)
        for one in found
    ]
    return head + "".join(rows)


def _parts(adapted: Adapted, found: Sequence[Transfer]) -> Iterable[tuple[str, str, list[Transfer]]]:
    """What the training knew in full, then what it lacked in each respect; a workload can lack several."""
    trained = [one for one in found if not adapted.held_out(one.workloads[0])]
    if trained:
        yield _counted("trained", trained), "all", trained
    for lacking in HELD_OUT:
        part = [one for one in found if lacking in adapted.held_out(one.workloads[0])]
        if part:
            yield _counted(f"held-out {lacking}", part), f"not the {lacking}", part


def _counted(title: str, part: Sequence[Transfer]) -> str:
    return f"{title}, {len(part)} workload{'' if len(part) == 1 else 's'}"


def _knew(adapted: Adapted, one: Transfer) -> str:
    lacking = adapted.held_out(one.workloads[0])
    return f"not the {' and '.join(lacking)}" if lacking else "all"


def _row(name: str, knew: str, one: Transfer, *, together: bool) -> str:
    cells = "".join(_cells(*pair) for pair in (one.correct, one.target))
    shown = f"<strong>{text(name)}</strong>" if together else text(name)
    return f'<tr><th scope="row" class="name">{shown}</th><td>{text(knew)}</td>{cells}</tr>'


def _cells(before: Pooled, after: Pooled) -> str:
    shares = "".join(
        f'<td title="{one.hits} of {one.turns} turns">{format_rate(one.hits, one.turns) if one.turns else ""}</td>'
        for one in (before, after)
    )
    return f"{shares}<td>{_change(before, after)}</td>"


def _change(before: Pooled, after: Pooled) -> str:
    """Percentage points, with a sign that a screen reader reads."""
    if not before.turns or not after.turns:
        return ""
    points = round(after.percent - before.percent, 1)
    return "0.0" if points == 0 else f"{points:+.1f}".replace("-", "\N{MINUS SIGN}")
