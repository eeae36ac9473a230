"""What JUnit XML says beside passed and failed: properties of a turn's test case, and of the whole suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptxbench.records import TurnRecord
from ptxbench.report.document import Environment, RunReport
from ptxbench.report.summary import used_evidence

PREFIX = "ptxbench."


def turn_properties(record: TurnRecord) -> list[tuple[str, str]]:
    """Return (name, value) pairs that say what the verdict is and what it rests on. Absent values have no pair."""
    values = {**_identity(record), **_verdict(record), **_evidence(record), **_call(record)}
    values["infrastructure_fault"] = record.fault.kind if record.fault is not None else None
    return [(f"{PREFIX}{name}", str(value)) for name, value in values.items() if value is not None]


def suite_properties(report: RunReport) -> list[tuple[str, str]]:
    """Return (name, value) pairs about all turns: what they were made with, and how many there are.

    Several values of one kind are joined by commas; absent ones have no pair.
    """
    values = {
        "models": _listed(cell.model for cell in report.cells),
        "archs": _listed(cell.arch for cell in report.cells),
        "turns": str(len(report.turns)),
        "turns.correct": str(sum(row.verdict.correct for row in report.turns)),
        "turns.unknown": str(sum(cell.unknown_outcomes + cell.unknown_targets for cell in report.cells)),
        "turns.infrastructure": str(sum(cell.excluded for cell in report.cells)),
        "baselines": _listed(
            f"{used.library} {used.version} ({used.call})" for cell in report.cells for used in cell.baselines
        ),
        **(dict(_environment(report.environment)) if report.environment is not None else {}),
    }
    return [(f"{PREFIX}{name}", value) for name, value in values.items() if value]


def _environment(found: Environment) -> Iterator[tuple[str, str]]:
    yield "devices", _listed(device.name for device in found.devices)
    yield "drivers", _listed(device.driver for device in found.devices)
    yield "cuda", _listed(device.cuda_runtime for device in found.devices)
    yield "compilers", _listed(f"nvcc {used.nvcc}" for used in found.compilers)
    yield "libraries", _listed(f"{name} {version}" for name, known in found.libraries.items() for version in known)
    yield "packs", _listed(f"{used.pack} ({used.level})" for used in found.prompts)
    yield "harnesses", _listed(found.harnesses)
    yield "suites", _listed(found.suites)
    if found.reporter is not None:
        yield "version", found.reporter.version
        yield "commit", found.reporter.commit or ""


def _listed(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _identity(record: TurnRecord) -> dict[str, object]:
    key = record.key
    return {
        "model": key.model,
        "case": key.case,
        "arch": key.arch,
        "variant": record.variant_name,
        "trajectory": key.trajectory,
        "turn": key.turn,
        "source_sha256": record.source_sha256,
        "cubin_sha256": record.build.cubin_sha256 if record.build is not None else None,
    }


def _verdict(record: TurnRecord) -> dict[str, object]:
    verdict = record.verdict
    return {
        "outcome": verdict.outcome.value,
        "rule": verdict.rule,
        "message": verdict.message,
        "target": verdict.target.value,
        "target_rule": verdict.target_rule,
        "target_message": verdict.target_message,
        "safe": verdict.safe.value,
        "safe_message": verdict.safe_message or None,
        "latency_ms": verdict.latency_ms,
        "latency_interval_ms": _interval(verdict.latency_interval_ms),
        "latency_source": verdict.latency_source,
        "baseline_ms": verdict.baseline_ms,
        "baseline_interval_ms": _interval(verdict.baseline_interval_ms),
        "speedup": verdict.speedup,
        "relative_rms": verdict.relative_rms,
        "mismatch_share": verdict.mismatch_share,
        "roofline_share": verdict.roofline_share,
        "useful_share": verdict.useful_share,
        "flags": " ".join(verdict.flags) or None,
    }


def _interval(ends: tuple[float, float] | None) -> str | None:
    return None if ends is None else f"{ends[0]} {ends[1]}"


def _evidence(record: TurnRecord) -> dict[str, object]:
    evidence = used_evidence(record)
    baseline = evidence.run.baseline if evidence is not None else None
    return {
        "baseline": f"{baseline.library} {baseline.version} ({baseline.call})" if baseline is not None else None,
        "evidence": record.evidence_origin,
        "device": evidence.device.name if evidence is not None else None,
        "measured_at": evidence.measured_at if evidence is not None else None,
    }


def _call(record: TurnRecord) -> dict[str, object]:
    exchange = record.exchange
    if exchange is None or exchange.reply is None:
        return {}
    reply, usage = exchange.reply, exchange.reply.usage
    return {
        "answered_by": reply.model,
        "reply_ended": reply.ended,
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": reply.cost_usd,
        "call_latency_s": reply.latency_s,
        "failed_attempts": len(exchange.attempts) or None,
    }
