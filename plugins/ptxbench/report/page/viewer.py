"""What the trajectory viewer shows: a small index of all turns, and one block of details and texts per trajectory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ptxbench.agent import StoredTurn
from ptxbench.records import Build, Exchange, TurnRecord
from ptxbench.report.document import EndRow, TurnRow
from ptxbench.report.page.board import label_of
from ptxbench.report.page.figures.base import LOOKS
from ptxbench.report.page.packing import SHARED_CHARS, Texts, packed
from ptxbench.report.page.palette import Look, needs_white
from ptxbench.report.sources import Source

FAMILIES = 16
"""Opcode families of the whole object that are listed beside the selected ones."""
STATES = tuple(LOOKS)


class Viewer(NamedTuple):
    """Everything in the form that the page holds it."""

    overview: dict[str, Any]
    blocks: list[str]
    """One per trajectory, packed."""
    shared: list[str]
    """Texts that begin several conversations, packed."""


class _Shared:
    """Texts that are kept once for the whole page."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._known: dict[str, int] = {}

    def add(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = len(self.blocks)
            texts = Texts()
            texts.add(text)
            self.blocks.append(packed(texts.data()))
        return f"s{self._known[text]}"


class _Names:
    """Numbers for names that repeat."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


def make_viewer(sources: Sequence[Source]) -> Viewer:
    """Gather the trajectories of all sources, in the order of their reports."""
    shared = _Shared()
    blocks: list[str] = []
    labels, cases, archs, variants = _Names(), _Names(), _Names(), _Names()
    table: dict[str, list[Any]] = defaultdict(list)
    for source in sources:
        ends = {end.key.trajectory_id: end for end in source.report.ends}
        given = {(cell.model, cell.case, cell.arch): cell.turns_per_trajectory for cell in source.report.cells}
        for rows, stored in _trajectories(source):
            key = rows[0].key
            end = ends.get(key.trajectory_id)
            table["id"].append(key.trajectory_id)
            table["label"].append(labels.number(label_of(source, key.model, len(sources))))
            table["case"].append(cases.number(key.case))
            table["arch"].append(archs.number(key.arch))
            table["variant"].append(variants.number(rows[0].variant_name))
            table["place"].append([key.variant, key.trajectory])
            table["given"].append(given.get((key.model, key.case, key.arch), len(rows)))
            table["turns"].append([_brief(row) for row in rows])
            blocks.append(packed(_block(rows, stored, end, shared)))
    names = {"labels": labels, "cases": cases, "archs": archs, "variants": variants}
    index: dict[str, Any] = {name: list(found.names) for name, found in names.items()}
    index["states"] = [_state(LOOKS[name]) for name in STATES]
    index["cells"] = [
        [label_of(source, cell.model, len(sources)), f"{cell.case} on {cell.arch}"]
        for source in sources
        for cell in source.report.cells
    ]
    return Viewer(index | {"trajectories": dict(table)}, blocks, shared.blocks)


def _state(look: Look) -> dict[str, Any]:
    return {"label": look.label, "glyph": look.glyph, "colour": look.colour, "light": needs_white(look.colour)}


def _trajectories(source: Source) -> Iterator[tuple[list[TurnRow], Mapping[str, StoredTurn]]]:
    """The turns of each trajectory in order, with what the run folder holds of them."""
    groups: dict[str, list[TurnRow]] = defaultdict(list)
    for row in source.report.turns:
        groups[row.key.trajectory_id].append(row)
    stored: dict[str, StoredTurn] = {}
    waiting = dict(groups)
    for found in _stored(source):
        # A folder is read in the order of its trajectories, and what was told is let go of.
        name = found.record.key.trajectory_id
        stored[str(found.record.key)] = found
        rows = waiting.get(name)
        if rows is not None and all(row.id in stored or row.fault is not None for row in rows):
            yield waiting.pop(name), {row.id: stored.pop(row.id) for row in rows if row.id in stored}
    for rows in waiting.values():
        yield rows, {row.id: stored[row.id] for row in rows if row.id in stored}


def _stored(source: Source) -> Iterable[StoredTurn]:
    return source.run.turns() if source.run is not None else ()


def _brief(row: TurnRow) -> list[Any]:
    """What the list of trajectories shows of a turn: number, state, target, speedup."""
    speedup = row.verdict.speedup
    return [
        row.key.turn,
        STATES.index(row.verdict.outcome.value),
        row.verdict.target.value[0],
        None if speedup is None else round(speedup, 4),
    ]


def _block(
    rows: Sequence[TurnRow], stored: Mapping[str, StoredTurn], end: EndRow | None, shared: _Shared
) -> dict[str, Any]:
    texts = Texts()
    turns = [_detail(row, stored.get(row.id), texts, shared) for row in rows]
    feedback = {
        found.record.follows: found.record.exchange.added[-1].content
        for found in stored.values()
        if found.record.follows is not None and found.record.exchange is not None and found.record.exchange.added
    }
    for row, turn in zip(rows, turns, strict=True):
        if row.key.turn in feedback:
            turn["feedback"] = texts.add(feedback[row.key.turn])
    told = None if end is None else {"turn": end.key.turn, "reason": end.reason, "message": end.message}
    return {**texts.data(), "turns": turns, "end": told}


def _detail(row: TurnRow, stored: StoredTurn | None, texts: Texts, shared: _Shared) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "id": row.id,
        "turn": row.key.turn,
        "verdict": row.verdict.model_dump(mode="json", exclude={"schema_version"}),
        "facts": _facts(row),
        "families": _families(row),
    }
    if row.fault is not None:
        detail["fault"] = f"{row.fault.kind}: {row.fault.message}"
    if stored is None:
        return detail
    record = stored.record
    if stored.candidate is not None:
        detail["kernel"] = texts.add(stored.candidate.source)
    if record.exchange is not None:
        detail |= _told(record, record.exchange, texts, shared)
    if record.build is not None:
        detail |= _built(record.build, texts)
    return detail


def _told(record: TurnRecord, exchange: Exchange, texts: Texts, shared: _Shared) -> dict[str, Any]:
    opening = record.follows is None
    prompt = [
        [
            message.role,
            shared.add(message.content)
            if opening and len(message.content) >= SHARED_CHARS
            else texts.add(message.content),
        ]
        for message in exchange.added
    ]
    found: dict[str, Any] = {"prompt": prompt, "follows": record.follows}
    if exchange.reply is not None:
        found["reply"] = texts.add(exchange.reply.text)
        if exchange.reply.reasoning:
            found["reasoning"] = texts.add(exchange.reply.reasoning)
    return found


def _built(build: Build, texts: Texts) -> dict[str, Any]:
    resources = [
        [one.kernel, one.registers, one.static_smem_bytes, one.spill_store_bytes + one.spill_load_bytes]
        for one in build.resources
    ]
    found: dict[str, Any] = {"resources": resources}
    if build.log.strip():
        found["log"] = texts.add(build.log)
    return found


def _families(row: TurnRow) -> list[list[Any]]:
    """Opcode families: name, lines in the object, predicate-enabled thread executions, whether it is selected."""
    if row.instructions is None:
        return []
    static, executed = row.instructions.static, row.instructions.executed or {}
    selected = row.verdict.families
    names = sorted(static.keys() | executed.keys(), key=lambda name: (name not in selected, -static.get(name, 0), name))
    kept = names[: max(FAMILIES, len(selected))]
    return [
        [name, static.get(name), None if row.instructions.executed is None else executed.get(name, 0), name in selected]
        for name in kept
    ]


def _facts(row: TurnRow) -> list[list[Any]]:
    """Numbers and names of a turn, as the page lists them: title, kind of value, value."""
    call, roof, base = row.call, row.roofline, row.baseline
    found: list[tuple[str, str, Any]] = [
        ("Device", "text", row.device),
        ("Measured", "text", row.measured_at),
        ("Evidence", "text", row.evidence_origin),
        ("Baseline", "text", None if base is None else f"{base.library} {base.version}, {base.call}"),
        ("Achieved", "tflops", None if roof is None else roof.tflops),
        ("Disturbances", "text", "; ".join(f"{each.kind}: {each.message}" for each in row.disturbances) or None),
        ("Model answered", "text", None if call is None else call.model),
        ("Reply ended", "text", None if call is None else call.ended),
        ("Input tokens", "count", None if call is None else call.usage.input_tokens),
        ("Output tokens", "count", None if call is None else call.usage.output_tokens),
        ("Reasoning tokens", "count", None if call is None else call.usage.reasoning_tokens),
        ("Cost", "usd", None if call is None else call.cost_usd),
        ("Model call", "s", None if call is None else call.latency_s),
        ("Failed attempts", "count", None if call is None or not call.failed_attempts else call.failed_attempts),
        ("Source", "hash", row.source_sha256),
        ("Device code", "hash", row.cubin_sha256),
    ]
    found += [(f"Stage: {stage}", "ms", milliseconds) for stage, milliseconds in row.stages_ms.items()]
    return [[title, kind, value] for title, kind, value in found if value is not None]
