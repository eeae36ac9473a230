"""The report as JSON: cells, and every turn with what its numbers are recomputed from.

The document depends on the turns alone: it is sorted, and holds no clock, path or process of the run that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.records import InfrastructureFault, Record, TrajectoryEnd, TurnKey, TurnRecord, Usage, Verdict
from ptxbench.report.calls import Calls, calls_of
from ptxbench.report.summary import (
    BaselineUse,
    Cell,
    CellKey,
    CellPlan,
    EvidenceOrigin,
    summarize,
    unique_records,
    used_evidence,
)


class CallRow(Record):
    """The call that a turn rests on. Prompt and reply are in the run folder."""

    model: str
    """What answered, in the provider's words."""
    ended: Literal["stop", "output_limit", "filtered", "unknown"]
    usage: Usage
    cost_usd: float | None
    cost_source: str
    latency_s: float
    failed_attempts: int
    prompt_sha256: str
    pack: str
    level: str


class EndRow(Record):
    """A trajectory that has fewer turns than it was given."""

    key: TurnKey
    """The first turn that did not happen."""
    reason: str
    message: str


class TurnRow(Record):
    """One turn. The rates follow from ``key``, ``verdict`` and ``fault``; the hashes say what was judged."""

    id: str
    key: TurnKey
    definition: str
    workload_uuid: str
    variant_name: str
    origin: str
    source_sha256: str | None
    cubin_sha256: str | None
    verdict: Verdict
    evidence_origin: EvidenceOrigin
    device: str | None
    measured_at: str | None
    harness: str | None
    baseline: BaselineUse | None
    min_speedup: float | None
    fault: InfrastructureFault | None
    call: CallRow | None = None


class RunReport(Record):
    """The whole report."""

    schema_version: Literal[1] = 1
    cells: tuple[Cell, ...]
    turns: tuple[TurnRow, ...]
    ends: tuple[EndRow, ...] = ()
    """Sorted as the turns are."""
    calls: Calls | None = None
    """Of all turns; None where no language model was asked."""


def build_report(
    records: Iterable[TurnRecord],
    planned: Mapping[CellKey, CellPlan] | None = None,
    ends: Iterable[TrajectoryEnd] = (),
) -> RunReport:
    """Return the report of these turns. Arguments and errors are those of ``summarize``."""
    rows = unique_records(records)
    ended = sorted(ends, key=lambda end: (end.key.model, end.key.arch, end.key.case, end.key.variant, str(end.key)))
    return RunReport(
        cells=summarize(rows, planned, ended),
        turns=tuple(_turn_row(row) for row in rows),
        ends=tuple(EndRow(key=end.key, reason=end.reason, message=end.message) for end in ended),
        calls=calls_of(rows),
    )


def _call_row(record: TurnRecord) -> CallRow | None:
    exchange = record.exchange
    if exchange is None or exchange.reply is None:
        return None
    reply = exchange.reply
    return CallRow(
        model=reply.model,
        ended=reply.ended,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        cost_source=reply.cost_source,
        latency_s=reply.latency_s,
        failed_attempts=len(exchange.attempts),
        prompt_sha256=exchange.prompt_sha256,
        pack=exchange.prompt.pack,
        level=exchange.prompt.level,
    )


def _turn_row(record: TurnRecord) -> TurnRow:
    evidence = used_evidence(record)
    baseline = evidence.run.baseline if evidence is not None else None
    return TurnRow(
        id=str(record.key),
        key=record.key,
        definition=record.definition,
        workload_uuid=record.workload_uuid,
        variant_name=record.variant_name,
        origin=record.origin,
        source_sha256=record.source_sha256,
        cubin_sha256=record.build.cubin_sha256 if record.build is not None else None,
        verdict=record.verdict,
        evidence_origin=record.evidence_origin,
        device=evidence.device.name if evidence is not None else None,
        measured_at=evidence.measured_at if evidence is not None else None,
        harness=evidence.harness if evidence is not None else None,
        baseline=None
        if baseline is None
        else BaselineUse(library=baseline.library, version=baseline.version, call=baseline.call),
        min_speedup=record.min_speedup,
        fault=record.fault,
        call=_call_row(record),
    )


def write_report(path: Path, report: RunReport) -> None:
    """Write the report to ``path``, whole or not at all, creating its folder. Raises InputError when it cannot."""
    data = (report.model_dump_json(indent=1) + "\n").encode()
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(
            f"{path}: expected a file that the report can be written to, found: {error.strerror or error}; "
            "choose a path in a folder that you may write to"
        ) from error
