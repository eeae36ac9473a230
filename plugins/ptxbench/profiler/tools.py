"""Nsight Compute and compute-sanitizer over the sandbox program: one call on the evaluated workload.

The tool starts the sandbox; the oracle stages inputs, asks for one call and compares the outputs as without the tool.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import stat
import subprocess
import sysconfig
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import ncu, sanitizer
from ptxbench.profiler.device_memory import taken_by_candidate
from ptxbench.profiler.procedure import failed
from ptxbench.profiler.processes import ending
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.state import WorkloadState
from ptxbench.profiler.worker import Worker, sandbox_command
from ptxbench.records import (
    InstructionEvidence,
    KeptMemory,
    RunStatus,
    SafetyEvidence,
    SafetyTool,
    ToolStatus,
)
from ptxbench.records.base import MOST_COUNT

TOOL_START_TIMEOUT_S = 90.0
TOOL_CALL_TIMEOUT_S = 60.0
"""For a call. The longest of a reference solution was memcheck's of a backward pass, 4.4 s with the tool's own start
(H200); a candidate that ends without a tool and hangs under one holds the device for no longer than this."""
TOOL_END_TIMEOUT_S = 60.0
FINDINGS_GRACE_S = 3.0
"""A finding that repeats per thread makes the sanitizer take minutes: this long after its first one it is ended."""
GROWTH_CALLS = (4, 8)
"""Calls after which kept memory is measured again, on the shrunk workload. What a candidate keeps for later calls, a
ring of buffers included, is there after four; what is allocated in every call has doubled after eight."""
GROWTH_TIMEOUT_S = 60.0
"""For the calls of one such measurement."""
MAX_REPORT_BYTES = 256 << 20
"""Of a tool's report. Nsight Compute's lists every instruction of every launch, a hundred bytes and more each."""
_POLL_S = 0.25


def find_tool(name: str) -> str | None:
    """A tool of the CUDA toolkit: PATH, then CUDA_HOME, then the usual places, then the pip wheels."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = [f"{root}/{sub}/{name}" for root in roots if root for sub in ("bin", "compute-sanitizer")]
    candidates += sorted(glob.glob(f"/opt/nvidia/nsight-compute/*/{name}"), reverse=True)
    wheels = Path(sysconfig.get_path("purelib")) / "nvidia"
    candidates += [str(path) for path in sorted(wheels.glob(f"*/bin/{name}"))]
    candidates += [str(path) for path in sorted(wheels.glob(f"*/compute-sanitizer/{name}"))]
    found = shutil.which(name)
    return found or next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)


@cache
def tool_version(path: str) -> str:
    """The last line that looks like a version in ``--version``."""
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = [line.strip() for line in text.splitlines() if line.strip().lower().startswith("version")]
    return lines[-1].removeprefix("Version").strip() if lines else "unknown"


class Ran(NamedTuple):
    """What became of calls under a tool."""

    passed: bool
    """Whether the outputs of the last one passed."""
    pool_bytes: int | None = None
    """In use in the device's memory pool behind them. None where that was not asked."""
    pool_unknown: str = ""
    """Why it is not known although it was asked."""


def _run_call(worker: Worker, stop_early: Callable[[], bool], begun: float, limit_s: float) -> None:
    """One call under a tool, given up early when the tool has already said enough. Raises WorkerError."""
    worker.begin_call()
    while not worker.answered(_POLL_S):
        if stop_early():
            raise WorkerError(RunStatus.RUNTIME_ERROR, "ended at the first findings")
        if time.monotonic() > begun + limit_s:
            raise WorkerError(RunStatus.TIMEOUT, f"no answer within {limit_s:.0f} s under the tool")
    worker.finish_call()


def _under_tool(
    state: WorkloadState,
    job: dict[str, Any],
    worker: Worker,
    stop_early: Callable[[], bool] = lambda: False,
    *,
    calls: int = 1,
    limit_s: float | None = None,
    finish: bool = False,
) -> Ran:
    """Load, stage, call, let the tool finish. Raises WorkerError.

    ``limit_s`` is for all calls together; with ``finish`` the process says what it keeps and destroys its context.
    """
    try:
        worker.wait_ready(TOOL_START_TIMEOUT_S)
    except InfrastructureError as error:
        # Without the tool the same program starts: this is the tool's failure.
        raise WorkerError(RunStatus.CRASHED, str(error)) from error
    state.arena.scrub()
    worker.load(job, TOOL_CALL_TIMEOUT_S)
    state.arena.arm()
    draw = state.checked[0]
    begun = time.monotonic()
    for _ in range(calls):
        state.stage(draw)
        _run_call(worker, stop_early, begun, TOOL_CALL_TIMEOUT_S if limit_s is None else limit_s)
    # By the rule of a timed call: this draw need not be one that the library has qualified.
    passed = not failed(state.compare(draw, 0))
    ran = _finished(worker, passed) if finish else Ran(passed)
    worker.notify("quit")
    code = worker.exit_code(TOOL_END_TIMEOUT_S)
    if code is None:
        raise WorkerError(RunStatus.TIMEOUT, f"the tool did not end within {TOOL_END_TIMEOUT_S:.0f} s")
    # A candidate may send signals here: a tool that was ended by one has not said all that it had to say.
    if code < 0:
        raise WorkerError(RunStatus.CRASHED, f"the tool {ending(code)}")
    return ran


def _finished(worker: Worker, passed: bool) -> Ran:
    """Have the process destroy its context. What goes wrong there says nothing of the calls before it."""
    try:
        answer: Any = json.loads(worker.request("finish", TOOL_END_TIMEOUT_S))
        pool_bytes = answer.get("pool_bytes") if isinstance(answer, dict) else None
        if isinstance(pool_bytes, int) and 0 <= pool_bytes <= MOST_COUNT:
            return Ran(passed, pool_bytes)
        return Ran(passed, pool_unknown=f"the process could not end in good order: {str(answer)[:200]}")
    except (WorkerError, ValueError, RecursionError) as error:
        return Ran(passed, pool_unknown=f"the process did not end in good order: {error}")


def count_instructions(state: WorkloadState, job: dict[str, Any]) -> InstructionEvidence:
    """Executed instructions per opcode. Tool failures are statuses, not exceptions."""
    begun = time.monotonic()
    found = _counted(state, job)
    return found.model_copy(update={"wall_ms": round((time.monotonic() - begun) * 1e3, 1)})


def _counted(state: WorkloadState, job: dict[str, Any]) -> InstructionEvidence:
    path = find_tool("ncu")
    if path is None:
        return InstructionEvidence(
            status=ToolStatus.UNAVAILABLE,
            message="Nsight Compute (ncu) was not found on PATH, in CUDA_HOME or under /opt/nvidia; install it",
        )
    version = f"ncu {tool_version(path)}"
    worker: Worker | None = None
    log = ""
    try:
        worker, report = _start(path, ncu.arguments, "--under-tool")
        with taken_by_candidate():
            passed = _under_tool(state, job, worker).passed
        log = _read(report)
        counts = ncu.parse(log)
        if not counts:
            raise ncu.ReportError("the report holds no instruction lines: " + ncu.reason(log))
        kernels = ncu.kernels(log)
        return InstructionEvidence(
            status=ToolStatus.OK,
            tool=version,
            counts=counts,
            kernels=tuple(kernels),
            launches=tuple(kernels.values()),
            outputs_match=passed,
        )
    except WorkerError as fault:
        status = ToolStatus.TIMEOUT if fault.status is RunStatus.TIMEOUT else ToolStatus.FAILED
        log = log or (_read(report) if worker else "")
        return InstructionEvidence(status=status, tool=version, message=ncu.reason(log) or str(fault))
    except ncu.ReportError as error:
        return InstructionEvidence(status=ToolStatus.FAILED, tool=version, message=str(error))
    finally:
        if worker:
            worker.close()


def sanitize(
    state: WorkloadState, job: dict[str, Any], tool: SafetyTool, limit_s: float | None = None
) -> SafetyEvidence:
    """One compute-sanitizer tool over one call of at most ``limit_s``. Tool failures are statuses, not exceptions."""
    begun = time.monotonic()
    axes = dict(state.case.workload.axes)
    path = find_tool("compute-sanitizer")
    if path is None:
        missing = "compute-sanitizer was not found on PATH, in CUDA_HOME or in the pip wheels; install it"
        return SafetyEvidence(tool=tool, status=ToolStatus.UNAVAILABLE, message=missing, axes=axes)
    parsed, ran, fault = _watched(path, state, job, tool, limit_s=limit_s)
    status, message = _ending(parsed, fault)
    leaks = tool == "memcheck" and ran is not None and not parsed.findings
    return SafetyEvidence(
        tool=tool,
        status=status,
        message=message,
        version=tool_version(path),
        findings=parsed.findings,
        finding_count=parsed.total,
        axes=axes,
        outputs_match=None if ran is None else ran.passed,
        leaks=parsed.leaks,
        kept=(_kept(1, parsed, ran),) if leaks and ran is not None else (),
        kept_unknown=ran.pool_unknown if leaks and ran is not None else "",
        wall_ms=round((time.monotonic() - begun) * 1e3, 1),
    )


def keeps_memory(found: SafetyEvidence) -> bool:
    """Whether it must be seen if what a candidate keeps grows: it is clean so far and has not freed all."""
    return found.status is ToolStatus.OK and any(not kept.nothing for kept in found.kept) and not found.kept_unknown


def measure_growth(state: WorkloadState, job: dict[str, Any], found: SafetyEvidence) -> SafetyEvidence:
    """Add what is kept after more calls, which tells memory that is kept from memory that is lost.

    ``state`` is of the shrunk workload. Tool failures end it, and the evidence says so.
    """
    begun = time.monotonic()
    path = find_tool("compute-sanitizer")
    if path is None:
        return found.model_copy(update={"kept_unknown": "compute-sanitizer was not found any more"})
    unknown = ""
    kept = list(found.kept)
    for calls in GROWTH_CALLS:
        parsed, ran, fault = _watched(path, state, job, "memcheck", calls=calls, limit_s=GROWTH_TIMEOUT_S)
        status, message = _ending(parsed, fault)
        if ran is None or parsed.findings or status is not ToolStatus.OK or ran.pool_unknown:
            unknown = message or (ran.pool_unknown if ran else "") or "memcheck had findings in later calls"
            # What is found in a later call is a finding like any other.
            update = {"findings": parsed.findings, "finding_count": parsed.total} if parsed.findings else {}
            found = found.model_copy(update=update)
            break
        kept.append(_kept(calls, parsed, ran))
    wall_ms = (found.wall_ms or 0.0) + (time.monotonic() - begun) * 1e3
    return found.model_copy(update={"kept": tuple(kept), "kept_unknown": unknown, "wall_ms": round(wall_ms, 1)})


def _kept(calls: int, parsed: sanitizer.Report, ran: Ran) -> KeptMemory:
    return KeptMemory(
        calls=calls,
        allocations=min(parsed.kept.allocations, MOST_COUNT),
        allocated_bytes=min(parsed.kept.allocated_bytes, MOST_COUNT),
        pool_bytes=ran.pool_bytes or 0,
    )


def _watched(
    path: str,
    state: WorkloadState,
    job: dict[str, Any],
    tool: SafetyTool,
    *,
    calls: int = 1,
    limit_s: float | None = None,
) -> tuple[sanitizer.Report, Ran | None, WorkerError | None]:
    """Calls under a sanitizer: its report, and what became of the calls or what they failed with."""
    worker, report = _start(path, lambda log: sanitizer.arguments(tool, log), "--under-tool", "--private")
    first_finding: list[float] = []

    def said_enough() -> bool:
        if not first_finding and sanitizer.parse(_read(report)).findings:
            first_finding.append(time.monotonic())
        return bool(first_finding) and time.monotonic() - first_finding[0] > FINDINGS_GRACE_S

    ran: Ran | None = None
    fault: WorkerError | None = None
    try:
        finish = tool == "memcheck"
        with taken_by_candidate():
            ran = _under_tool(state, job, worker, said_enough, calls=calls, limit_s=limit_s, finish=finish)
    except WorkerError as caught:
        fault = caught
        worker.notify("quit")
        if fault.status is not RunStatus.TIMEOUT:
            # The tool writes its summary when the process it watches ends.
            worker.exit_code(FINDINGS_GRACE_S)
    finally:
        parsed = sanitizer.parse(_read(report))
        worker.close()
    return parsed, ran, fault


def _ending(parsed: sanitizer.Report, fault: WorkerError | None) -> tuple[ToolStatus, str]:
    """Whether a sanitizer's report can be believed, and why not. Findings are believed however it ended."""
    if parsed.findings:
        return ToolStatus.OK, ""
    if fault is not None:
        status = ToolStatus.TIMEOUT if fault.status is RunStatus.TIMEOUT else ToolStatus.FAILED
        return status, f"{fault}; {parsed.remark}".rstrip("; ")
    if not parsed.complete:
        return ToolStatus.FAILED, parsed.remark or "the tool wrote no summary"
    return ToolStatus.OK, parsed.remark


def _start(path: str, arguments: Callable[[Path], list[str]], *flags: str) -> tuple[Worker, Path]:
    """Start the sandbox under a tool whose report goes to a file in a folder of its own. Raises InfrastructureError."""
    import tempfile

    try:
        folder = Path(tempfile.mkdtemp(prefix="ptxbench-tool-"))
    except OSError as error:
        raise InfrastructureError(
            "disk_full" if error.errno == errno.ENOSPC else "sandbox_failed",
            f"expected a folder for a tool's report in {tempfile.gettempdir()}: {error.strerror}; make room there",
        ) from error
    report = folder / "report"
    try:
        worker = Worker(sandbox_command(*flags, prefix=[path, *arguments(report)]))
    except InfrastructureError:
        folder.rmdir()
        raise
    worker.also_remove(folder)
    return worker, report


def _open_file(path: str, flags: int) -> int:
    """Open what is no link, without waiting for whoever is at the other end of it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _read(report: Path) -> str:
    """The report so far. A candidate under a tool may put something else in its place: what is no file says nothing."""
    try:
        with open(report, "rb", opener=_open_file) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(MAX_REPORT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
