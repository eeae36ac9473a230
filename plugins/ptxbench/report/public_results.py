"""Turns as solutions and traces of the public FlashInfer-Trace schema."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import JsonValue

from ptxbench.records import Candidate, Evidence, Outcome, OutputComparison, TurnRecord
from ptxbench.trace.solution import Binding, BuildSpec, Solution, SourceFile, SourceLanguage
from ptxbench.trace.trace import Correctness, Environment, Evaluation, EvaluationStatus, Performance, Trace
from ptxbench.trace.workload import Workload
from ptxbench.verdict import Rule

STATUS = {
    Outcome.CORRECT: EvaluationStatus.PASSED,
    Outcome.NUMERICAL_ERROR: EvaluationStatus.INCORRECT_NUMERICAL,
    Outcome.WRONG_SHAPE_OR_DTYPE: EvaluationStatus.INCORRECT_DTYPE,
    Outcome.SCREENED: EvaluationStatus.COMPILE_ERROR,
    Outcome.COMPILE_ERROR: EvaluationStatus.COMPILE_ERROR,
    Outcome.MEMORY_ERROR: EvaluationStatus.RUNTIME_ERROR,
    Outcome.RUNTIME_ERROR: EvaluationStatus.RUNTIME_ERROR,
    Outcome.TIMEOUT: EvaluationStatus.TIMEOUT,
}
"""What the schema's seven words can say. The others have none: no kernel, nobody knows, nobody's fault."""


def solution_of(record: TurnRecord, candidate: Candidate) -> Solution:
    """The kernel of a turn. Its name is the turn's id, its author the model."""
    return Solution(
        name=str(record.key),
        definition=record.definition,
        author=record.key.model,
        spec=BuildSpec(
            language=SourceLanguage.CUDA,
            target_hardware=(f"NVIDIA_{record.key.arch.upper()}",),
            entry_point=candidate.entry,
            binding=Binding.TVM_FFI,
        ),
        sources=(SourceFile(path=candidate.entry.partition("::")[0], content=candidate.source),),
        description=f"PTXBench: {record.origin}",
    )


def trace_of(record: TurnRecord, workload: Workload, created_at: str) -> Trace | None:
    """The result of a turn; None for an outcome that the schema has no word for.

    ``created_at`` is the time of a turn that was compiled and never ran. A latency or speedup of 0, the schema's
    default, is one that is not known.
    """
    verdict = record.verdict
    status = STATUS.get(verdict.outcome)
    if status is None or record.source_sha256 is None:
        return None
    if verdict.rule == Rule.SHAPE:
        status = EvaluationStatus.INCORRECT_SHAPE
    evidence = record.evidence
    passed = status is EvaluationStatus.PASSED
    evaluation = Evaluation(
        status=status,
        environment=_environment(record, evidence),
        timestamp=evidence.measured_at if evidence is not None else created_at,
        log=_log(record),
        correctness=_correctness(record) if passed or status is EvaluationStatus.INCORRECT_NUMERICAL else None,
        performance=Performance(
            latency_ms=verdict.latency_ms or 0.0,
            reference_latency_ms=verdict.baseline_ms or 0.0,
            speedup_factor=verdict.speedup or 0.0,
        )
        if passed
        else None,
    )
    return Trace(definition=record.definition, workload=workload, solution=str(record.key), evaluation=evaluation)


def _environment(record: TurnRecord, evidence: Evidence | None) -> Environment:
    libs = {"nvcc": record.build.toolchain.nvcc} if record.build is not None else {}
    if evidence is None:
        return Environment(hardware=f"none: compiled for {record.key.arch}, not run", libs=libs)
    baseline = evidence.run.baseline
    measured = {baseline.library: baseline.version} if baseline is not None else {}
    libs = {**evidence.libraries, **measured, **libs, "ptxbench": evidence.harness, "driver": evidence.device.driver}
    return Environment(hardware=evidence.device.name, libs=dict(sorted(libs.items())))


def _log(record: TurnRecord) -> str:
    verdict = record.verdict
    lines = [
        f"{verdict.outcome.value} [{verdict.rule}]: {verdict.message}",
        f"target instruction: {verdict.target.value} [{verdict.target_rule}]: {verdict.target_message}",
    ]
    if verdict.flags:
        lines.append(f"flags: {', '.join(verdict.flags)}")
    return "\n".join(lines)


def _outputs(evidence: Evidence | None) -> Iterator[OutputComparison]:
    for trial in evidence.run.trials if evidence is not None else ():
        for call in trial.checks:
            yield from call.outputs


def _correctness(record: TurnRecord) -> Correctness:
    evidence, verdict = record.evidence, record.verdict
    outputs = list(_outputs(evidence))
    baseline = evidence.run.baseline if evidence is not None else None
    extra: dict[str, JsonValue] = {
        "outcome": verdict.outcome.value,
        "target_instruction": verdict.target.value,
        "relative_rms": _finite(verdict.relative_rms),
        "mismatch_share": _finite(verdict.mismatch_share),
        "flags": list(verdict.flags),
        "source_sha256": record.source_sha256,
        "cubin_sha256": record.build.cubin_sha256 if record.build is not None else None,
        "baseline": f"{baseline.library} {baseline.version} ({baseline.call})" if baseline is not None else None,
    }
    return Correctness(
        max_relative_error=max((output.max_rel_error for output in outputs), default=0.0),
        max_absolute_error=max((output.max_abs_error for output in outputs), default=0.0),
        extra={"ptxbench": extra},
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
