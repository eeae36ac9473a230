"""What stands below a table: where its numbers come from, and what they leave out."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ptxbench.cases.defaults import REFERENCE_CALL
from ptxbench.records import Outcome
from ptxbench.report.calls import count_of, describe_calls
from ptxbench.report.cell import Cell
from ptxbench.verdict.metrics import TARGET_SPEEDUP, format_rate

LEGEND = (
    "N: trajectories x turns, less turns excluded for infrastructure faults; a turn that never happened counts as not "
    "correct. target: correct, and the architecture's own instructions are known to have executed. Speedups and fast_p "
    "are over all N turns. -: none. ?: none known, and an unknown keeps that from meaning zero."
)


_PAUSES = {
    "budget": "the budget was spent",
    "stopped": "the run was stopped",
    "unmeasured": "there was nothing to measure with",
}
_TOLD_ELSEWHERE = (Outcome.CORRECT, Outcome.UNKNOWN, Outcome.INFRASTRUCTURE_ERROR)


def notes(cells: Sequence[Cell], width: int) -> list[str]:
    """Return the footnotes of one section, wrapped to ``width``."""
    texts = [
        *_mixed(cells),
        *imported(cells),
        _evidence(cells),
        *_baselines(cells),
        *_failures(cells),
        *_unknowns(cells),
        *_early_ends(cells),
        *_containment(cells),
        *_calls(cells),
        *_partial(cells),
        *_remarks(cells),
        LEGEND,
    ]
    return [line for text in texts for line in textwrap.wrap(text, width, subsequent_indent="  ")]


def imported(cells: Sequence[Cell]) -> list[str]:
    """Return one sentence where results are somebody else's."""
    count = sum(cell.imported for cell in cells)
    if not count:
        return []
    are = "is a result" if count == 1 else "are results"
    return [
        f"IMPORTED: {count_of(count, 'turn')} {are} that somebody else stated, without evidence of ours: nothing was "
        "built, measured or judged here."
    ]


def _evidence(cells: Sequence[Cell]) -> str:
    origins: Counter[str] = Counter()
    for cell in cells:
        origins.update(cell.evidence_origins)
    devices = ", ".join(sorted({device for cell in cells for device in cell.devices}))
    days = sorted({day for cell in cells for day in cell.measured})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    parts = []
    if origins["measured"]:
        parts.append(f"{count_of(origins['measured'], 'turn')} measured in this run")
    if origins["replayed"]:
        parts.append(f"{count_of(origins['replayed'], 'turn')} re-judged from stored evidence")
    if origins["none"]:
        parts.append(f"{count_of(origins['none'], 'turn')} without evidence")
    where = f" (device: {devices}; measured {when})" if devices else ""
    return f"Evidence: {', '.join(parts)}{where}."


def _baselines(cells: Sequence[Cell]) -> list[str]:
    cases: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        for used in cell.baselines:
            cases[f"{used.library} {used.version} ({used.call})"].append(cell.case)
    listed = [f"{name} for {_list(names)}" for name, names in sorted(cases.items())]
    own = [cell.case for cell in cells for used in cell.baselines if used.call == REFERENCE_CALL]
    texts = [f"Baseline: {'; '.join(listed)}."] if listed else []
    if own:
        texts.append(
            f"No library: the baseline of {_list(own)} is the definition's own reference in eager PyTorch, so a "
            "speedup over it is not one over a tuned kernel."
        )
    return texts


def _failures(cells: Sequence[Cell]) -> list[str]:
    shown = []
    for cell in cells:
        outcomes = {name: count for name, count in cell.outcomes.items() if name not in _TOLD_ELSEWHERE}
        if outcomes:
            counts = ", ".join(f"{count} {name}" for name, count in outcomes.items())
            shown.append(f"{cell.case}: {counts} of {count_of(cell.turns, 'turn')}")
    return [f"Not correct: {'; '.join(shown)}."] if shown else []


def _unknowns(cells: Sequence[Cell]) -> list[str]:
    outcomes = sum(cell.unknown_outcomes for cell in cells)
    targets = sum(cell.unknown_targets for cell in cells)
    speeds = sum(cell.unknown_speeds for cell in cells)
    excluded = sum(cell.excluded for cell in cells)
    texts = []
    if outcomes or targets or speeds:
        timed = f", {count_of(speeds, 'correct turn')} without a known speed" if speeds else ""
        texts.append(
            f"Unknown: {count_of(outcomes, 'turn')} without a known outcome, {count_of(targets, 'correct turn')} "
            f"without a known target indicator{timed}; they are in N and in no numerator that needs it."
        )
    if excluded:
        texts.append(f"Infrastructure: {count_of(excluded, 'turn')} could not be judged and left out of N.")
    return texts


def _early_ends(cells: Sequence[Cell]) -> list[str]:
    shown = []
    for cell in cells:
        at = cell.limits[-1]
        needed = at.correct.turns - at.correct.unneeded
        if at.correct.unneeded and needed:
            correct, target = format_rate(at.correct.hits, needed), format_rate(at.target.hits, needed)
            shown.append(f"{cell.case} (N {needed}) correct {correct}, target {target}")
    if not shown:
        return []
    return [f"Ended early at {TARGET_SPEEDUP}x; without the turns that were not needed: {'; '.join(shown)}."]


def _containment(cells: Sequence[Cell]) -> list[str]:
    missing: Counter[str] = Counter()
    for cell in cells:
        missing.update(cell.missing_layers)
    if not missing:
        return []
    layers = ", ".join(f"{layer} ({count_of(count, 'turn')})" for layer, count in sorted(missing.items()))
    return [
        f"Containment: kernels ran without these layers around their process: {layers}. A turn's evidence says why, "
        "docs/containment.md what each layer stops, and ptxbench doctor what this machine has."
    ]


def _calls(cells: Sequence[Cell]) -> list[str]:
    texts = [f"{cell.case}: {describe_calls(cell.calls)}" for cell in cells if cell.calls is not None]
    remarks = {
        "replies cut off at the output limit": sum(cell.calls.truncated for cell in cells if cell.calls),
        "replies withheld by the provider": sum(cell.calls.filtered for cell in cells if cell.calls),
        "failed attempts before a reply": sum(cell.calls.failed_attempts for cell in cells if cell.calls),
        "trajectories ended by a full context": sum(cell.context_exhausted for cell in cells),
    }
    counted = [f"{what} {count}" for what, count in remarks.items() if count]
    found = [f"Calls: {'; '.join(texts)}."] if texts else []
    return [*found, f"Remarks (calls): {', '.join(counted)}."] if counted else found


def _partial(cells: Sequence[Cell]) -> list[str]:
    pauses: Counter[str] = Counter()
    for cell in cells:
        pauses.update(cell.pauses)
    texts = []
    for reason, count in sorted(pauses.items()):
        was, is_ = ("was", "is") if count == 1 else ("were", "are")
        why = _PAUSES.get(reason, reason)
        texts.append(f"Partial: {why}; {count_of(count, 'turn')} {was} not asked for and {is_} left out of N.")
    unselected = sum(cell.unselected for cell in cells)
    if unselected:
        was, is_ = ("was", "is") if unselected == 1 else ("were", "are")
        turns = count_of(unselected, "turn")
        texts.append(f"Selected: {turns} of these trajectories {was} not selected and {is_} left out of N.")
    return texts


def _mixed(cells: Sequence[Cell]) -> list[str]:
    """Said loudly: rates over two models, or two prompts, are of neither."""
    return [
        f"MIXED: {cell.case}: its turns were not asked for in one way, so its rates are of no single model and prompt: "
        f"{'; '.join(cell.mixed)}."
        for cell in cells
        if cell.mixed
    ]


def _remarks(cells: Sequence[Cell]) -> list[str]:
    flags: Counter[str] = Counter()
    for cell in cells:
        flags.update(cell.flags)
    unsafe = sum(cell.unsafe for cell in cells)
    counts = [f"{name} {count}" for name, count in sorted(flags.items())]
    if unsafe:
        counts.insert(0, f"unsafe {unsafe}")
    return [f"Remarks (turns): {', '.join(counts)}."] if counts else []


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
