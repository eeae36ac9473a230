"""From a turn's record to its row in the JSON report. Pure."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from ptxbench.cases.arch import opcode_base
from ptxbench.records import Build, Evidence, ToolStatus, TurnRecord
from ptxbench.report.cell import BaselineUse
from ptxbench.report.document import CallRow, Instructions, LatencySamples, Roofline, TurnRow
from ptxbench.report.summary import used_evidence
from ptxbench.verdict.instruction_counts import counts_of_call
from ptxbench.verdict.speed import believed_ns

if TYPE_CHECKING:
    from ptxbench.cases import Case

NS_PER_MS = 1e6
WHISKER = 1.5
"""Interquartile ranges beyond a quartile within which an iteration is no outlier: Tukey's rule."""


class Work(NamedTuple):
    """What one call of a case has to do, and what a device could do of it."""

    flops: int
    bytes: int
    flops_per_clock_per_sm: int
    """Dense BF16 ceiling of the architecture."""

    @classmethod
    def of(cls, case: Case) -> Self:
        """The work of a case."""
        return cls(case.flops, case.bytes, case.arch.bf16_flops_per_clock_per_sm)


FindWork = Callable[[TurnRecord], Work | None]


def turn_row(record: TurnRecord, work: Work | None) -> TurnRow:
    """Return the row of a turn; ``work`` is that of its case, None where that is not known."""
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
        instructions=_instructions(record.build, evidence),
        samples=_samples(record, evidence),
        roofline=_roofline(record, evidence, work),
        stages_ms=record.stages_ms,
        gpu_stages_ms=evidence.run.stages_ms if evidence is not None else {},
        disturbances=evidence.run.disturbances if evidence is not None else (),
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
        asked_at=exchange.asked_at,
        pack_sha256=exchange.prompt.pack_sha256,
        template=exchange.prompt.template,
    )


def _instructions(build: Build | None, evidence: Evidence | None) -> Instructions | None:
    if build is None or not build.kernels:
        return None
    static: Counter[str] = Counter()
    for cubin in build.cubins:
        for kernel in cubin.kernels:
            static.update(kernel.opcodes)
    executed: Counter[str] | None = None
    if evidence is not None and evidence.instructions.status is ToolStatus.OK:
        executed = Counter()
        for count in counts_of_call(evidence):
            executed[opcode_base(count.opcode)] += count.thread_inst_executed_true
    return Instructions(static=_sorted(static), executed=None if executed is None else _sorted(executed))


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _samples(record: TurnRecord, evidence: Evidence | None) -> LatencySamples | None:
    """The timed iterations, each trial on the clock that the judge believes in it."""
    if record.verdict.latency_ms is None or evidence is None:
        return None
    timings = [trial.timing for trial in evidence.run.trials if trial.timing is not None]
    trials = believed_ns(timings, evidence.run.baseline)
    return summary_of([[ns / NS_PER_MS for ns in trial] for trial in trials if trial])


def summary_of(trials: Sequence[Sequence[float]]) -> LatencySamples | None:
    """Return what the iterations of some trials, in milliseconds, are like; None where there is no iteration."""
    values = sorted(value for trial in trials for value in trial)
    if not values:
        return None
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    reach = WHISKER * (q3 - q1)
    first, behind = bisect_left(values, q1 - reach), bisect_right(values, q3 + reach)
    mean = statistics.fmean(values)
    # Not statistics.stdev, whose exact arithmetic would be most of what a report of many turns costs.
    stddev = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))
    return LatencySamples(
        count=len(values),
        trial_medians_ms=tuple(statistics.median(trial) for trial in trials),
        min_ms=values[0],
        q1_ms=q1,
        median_ms=median,
        q3_ms=q3,
        max_ms=values[-1],
        mean_ms=mean,
        stddev_ms=stddev,
        whisker_low_ms=values[first],
        whisker_high_ms=values[behind - 1],
        outliers=len(values) - (behind - first),
        beyond_stddev=sum(abs(value - mean) > stddev for value in values),
    )


def _roofline(record: TurnRecord, evidence: Evidence | None, work: Work | None) -> Roofline | None:
    latency_ms = record.verdict.latency_ms
    # Of an operator that no suite knows, no FLOPs are claimed: it has no place under a roofline.
    if work is None or not work.flops or not latency_ms or evidence is None:
        return None
    device = evidence.device
    peak_flops = device.sm_count * work.flops_per_clock_per_sm * device.max_sm_clock_mhz * 1e6
    seconds = latency_ms / 1e3
    return Roofline(
        flops=work.flops,
        bytes=work.bytes,
        tflops=work.flops / seconds / 1e12,
        gbytes_per_s=work.bytes / seconds / 1e9,
        peak_tflops=peak_flops / 1e12 or None,
        peak_gbytes_per_s=device.memory_bandwidth_bytes_per_s / 1e9 or None,
    )
