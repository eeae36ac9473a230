"""What one task finds: builds, measures and judges one solution on its workloads. Runs in the evaluation process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.agent.evaluation import EvidenceOrigin as Origin
from ptxbench.cases import Case
from ptxbench.client.shapes import SafetyToolName, Submission, TaskKind, TaskStatus
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models.base import Proposal
from ptxbench.models.solutions import one_source
from ptxbench.profiler import Profiler
from ptxbench.profiler.ticket import ticket
from ptxbench.profiler.wire import expect_same
from ptxbench.records import (
    Build,
    BuildStatus,
    Candidate,
    Evidence,
    InfrastructureFault,
    Outcome,
    Record,
    RunEvidence,
    SafetyEvidence,
    ToolStatus,
    TurnKey,
    TurnRecord,
    Verdict,
)
from ptxbench.report.public_results import trace_of
from ptxbench.service.catalog import Catalog
from ptxbench.service.store import Finished, failed
from ptxbench.toolchain import Built
from ptxbench.verdict import judge

MAX_LOG_CHARS = 20_000
NOBODY_KNOWS = "nobody knows: no device ran this, and no stored evidence has its hashes"


class Found(NamedTuple):
    """What was found on one workload."""

    result: dict[str, Any]
    """Fields of ``TaskResult``."""
    detail: str
    """JSON of ``TaskDetail``. Evidence is long, and pydantic writes it ten times as fast as json would."""
    trace: dict[str, Any] | None = None
    log: dict[str, Any] | None = None
    unknown: str = ""
    """Why there is nothing to tell; empty: there is something."""


class Judge:
    """Does tasks. Safe for several threads."""

    def __init__(self, catalog: Catalog, profiler: Profiler, evaluator: Evaluator) -> None:
        self._catalog = catalog
        self._profiler = profiler
        self._evaluator = evaluator
        self._kinds: dict[TaskKind, Callable[[Case, Candidate, Submission], Found]] = {
            "evaluate": self._evaluate,
            "profile": self._profile,
            "sanitize": self._sanitize,
            "debug": self._debug,
        }

    def perform(self, kind: TaskKind, request: bytes, solution: str) -> Finished:
        """One task; ``solution`` is its normalized name. Faults are outcomes too."""
        try:
            submission = Submission.model_validate_json(request)
            candidate = Candidate(source=one_source(submission.solution))
        except ValueError as error:
            return failed(f"the solution cannot be built here: {error}")
        found: list[Found] = []
        try:
            cases = self._catalog.select(submission)
            with ticket(submission.client, submission.priority):
                for case in cases:
                    found.append(self._kinds[kind](case, candidate, submission))
        except InfrastructureError as error:
            # What was measured before it is told.
            return _outcomes(found, solution, InfrastructureFault(kind=error.kind, message=str(error)))
        except InputError as error:
            return failed(str(error))
        return _outcomes(found, solution)

    def _evaluate(self, case: Case, candidate: Candidate, submission: Submission) -> Found:
        if submission.complete:
            if submission.cubin_sha256 is not None:
                self._built(case, candidate, submission)
            done = self._evaluator.evaluate(case, Proposal(candidate=candidate, origin="service"), self._profiler)
        else:
            done = self._measure(case, candidate, submission)
        return _judged(case, candidate, submission, done)

    def _measure(self, case: Case, candidate: Candidate, submission: Submission) -> Evaluation:
        """The measurement alone, for a client that asks for the other operations one by one."""
        built = self._built(case, candidate, submission)
        evidence = self._profiler.evaluate(case, built) if built.build.status is BuildStatus.OK else None
        origin: Origin = self._profiler.origin if evidence is not None else "none"
        return Evaluation(built.build, evidence, origin, judge(case, built.build, evidence), {})

    def _built(self, case: Case, candidate: Candidate, submission: Submission) -> Built:
        built = self._evaluator.build(candidate, case)
        expect_same(built, submission.cubin_sha256, submission.nvcc)
        return built

    def _profile(self, case: Case, candidate: Candidate, submission: Submission) -> Found:
        built = self._built(case, candidate, submission)
        if built.build.status is not BuildStatus.OK:
            return _unbuilt(case, built.build)
        counts = self._profiler.instructions(case, built)
        lines = [f"{counts.status.value}: {counts.message or counts.tool}"]
        lines += [f"{row.thread_inst_executed_true:>16} {row.opcode}  {row.kernel}" for row in counts.counts]
        result = {**_about(case, self._profiler.origin), "instructions": _plain(counts)}
        unknown = _unavailable([counts.status], counts.message)
        return Found(result, _detail(built.build), log=_log(case, lines), unknown=unknown)

    def _sanitize(self, case: Case, candidate: Candidate, submission: Submission) -> Found:
        built = self._built(case, candidate, submission)
        if built.build.status is not BuildStatus.OK:
            return _unbuilt(case, built.build)
        tools: list[SafetyToolName] = list(dict.fromkeys(submission.sanitizer_types or ["memcheck"]))
        safety = [self._profiler.sanitize(case, built, tool) for tool in tools]
        result = {**_about(case, self._profiler.origin), "safety": [_plain(found) for found in safety]}
        unknown = _unavailable([one.status for one in safety], safety[0].message)
        return Found(result, _detail(built.build), log=_log(case, _safety_lines(safety)), unknown=unknown)

    def _debug(self, case: Case, candidate: Candidate, submission: Submission) -> Found:
        """Where a call ends or waits, from an evaluation's own look, and memcheck's findings."""
        built = self._built(case, candidate, submission)
        if built.build.status is not BuildStatus.OK:
            return _unbuilt(case, built.build)
        evidence = self._profiler.evaluate(case, built)
        safety = self._profiler.sanitize(case, built, "memcheck")
        verdict = judge(case, built.build, evidence)
        run = evidence.run if evidence is not None else None
        result = {
            **_about(case, self._profiler.origin if evidence is not None else "none", evidence),
            "verdict": _plain(verdict),
            "safety": [_plain(safety)],
        }
        lines = [f"{verdict.outcome.value} [{verdict.rule}]: {verdict.message}", *_run_lines(run)]
        log = _log(case, [*lines, *_safety_lines([safety])])
        unknown = _unavailable([safety.status], safety.message) if evidence is None else ""
        return Found(result, _detail(built.build, run=run), log=log, unknown=unknown)


def _judged(case: Case, candidate: Candidate, submission: Submission, done: Evaluation) -> Found:
    """An evaluation as result, detail and, where the schema has a word for its outcome, trace."""
    assert done.build is not None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    author = submission.solution.author
    record = TurnRecord(
        key=TurnKey(model=author, case=case.name, arch=case.arch.name, variant=0, trajectory=0, turn=0),
        definition=case.definition.name,
        workload_uuid=case.workload.uuid,
        variant_name=case.variants[0],
        origin=f"service: {submission.solution.name}",
        source_sha256=candidate.sha256,
        build=done.build,
        evidence=done.evidence,
        evidence_origin=done.origin,
        verdict=done.verdict,
    )
    trace = trace_of(record, case.workload, now)
    result = {
        **_about(case, done.origin, done.evidence),
        "verdict": _plain(done.verdict),
        "message": _build_message(done.build),
        "stages_ms": done.stages_ms,
    }
    return Found(
        result,
        _detail(done.build, done.evidence),
        trace=_plain(trace) if trace is not None else None,
        unknown=NOBODY_KNOWS if done.verdict.outcome is Outcome.UNKNOWN else "",
    )


def _about(case: Case, origin: Origin, evidence: Evidence | None = None) -> dict[str, Any]:
    about: dict[str, Any] = {"workload_uuid": case.workload.uuid, "arch": case.arch.name, "origin": origin}
    if evidence is not None:
        about |= {"device": evidence.device.name, "measured_at": evidence.measured_at}
    return about


def _detail(build: Build, evidence: Evidence | None = None, run: RunEvidence | None = None) -> str:
    parts = {"build": build, "evidence": evidence, "run": run}
    return f"{{{','.join(f'{json.dumps(name)}:{_json(part)}' for name, part in parts.items())}}}"


def _plain(model: BaseModel) -> Any:  # noqa: ANN401 - whatever JSON holds
    """A model as JSON has it, which for what is not finite has words only (pydantic's own dictionaries have floats)."""
    return json.loads(model.model_dump_json())


def _json(record: Record | None) -> str:
    return record.model_dump_json() if record is not None else "null"


def _unbuilt(case: Case, build: Build) -> Found:
    verdict: Verdict = judge(case, build, None)
    lines = [f"{verdict.outcome.value} [{verdict.rule}]: {verdict.message}", build.log]
    result = {
        **_about(case, "none"),
        "verdict": _plain(verdict),
        "message": _build_message(build),
    }
    return Found(result, _detail(build), log=_log(case, lines))


def _build_message(build: Build) -> str:
    return build.log[:MAX_LOG_CHARS] if build.status is not BuildStatus.OK else ""


def _log(case: Case, lines: list[str]) -> dict[str, Any]:
    return {
        "definition": case.definition.name,
        "workload": _plain(case.workload),
        "log": "\n".join(lines)[:MAX_LOG_CHARS],
    }


def _safety_lines(safety: list[SafetyEvidence]) -> list[str]:
    lines: list[str] = []
    for tool in safety:
        lines.append(f"{tool.tool}: {tool.status.value}, {tool.finding_count} findings {tool.message}".rstrip())
        lines += [f"  {found.kind}: {found.message} {found.location}".rstrip() for found in tool.findings]
    return lines


def _run_lines(run: RunEvidence | None) -> list[str]:
    if run is None:
        return []
    lines = [f"{run.status.value} at {run.stage or 'the end'}: {run.message}"]
    lines += [
        f"  {place.threads} threads of {place.blocks} blocks wait in {place.kernel}: {place.instruction}"
        for place in run.waiting
    ]
    lines += [f"  where it waits is not known: {run.waiting_unknown}"] if run.waiting_unknown else []
    return [*lines, run.output_tail] if run.output_tail else lines


def _unavailable(statuses: list[ToolStatus], message: str) -> str:
    """Why no tool had anything to tell; empty where one had."""
    return message if all(status is ToolStatus.UNAVAILABLE for status in statuses) else ""


def _outcomes(found: list[Found], solution: str, fault: InfrastructureFault | None = None) -> Finished:
    traces = [{**one.trace, "solution": solution} for one in found if one.trace is not None]
    logs = [{**one.log, "solution": solution} for one in found if one.log is not None]
    error = fault.message if fault is not None else found[0].unknown if all(one.unknown for one in found) else None
    document: dict[str, Any] = {
        "traces": traces or None,
        "logs": logs or None,
        "error": error,
        "fault": _plain(fault) if fault is not None else None,
        "results": [one.result for one in found],
    }
    detail = f"[{','.join(one.detail for one in found)}]"
    status: TaskStatus = "completed" if error is None else "failed"
    return Finished(status, json.dumps(document).encode(), zlib.compress(detail.encode(), 1))
