"""Nsight Compute and compute-sanitizer over the sandbox program: one call on the evaluated workload.

The tool starts the sandbox; the oracle stages inputs, asks for one call and compares the outputs as without the tool.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import ncu, sanitizer
from ptxbench.profiler.procedure import failed
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.state import WorkloadState
from ptxbench.profiler.worker import Worker, sandbox_command
from ptxbench.records import (
    InstructionEvidence,
    RunStatus,
    SafetyEvidence,
    ToolStatus,
)

if TYPE_CHECKING:
    from ptxbench.profiler.protocol import SafetyTool

TOOL_START_TIMEOUT_S = 90.0
TOOL_CALL_TIMEOUT_S = 300.0
"""initcheck takes minutes for the reference GEMM even on its shrunk axes (H200): N and K are const."""
TOOL_END_TIMEOUT_S = 60.0
FINDINGS_GRACE_S = 3.0
"""A finding that repeats per thread makes the sanitizer take minutes: this long after its first one it is ended."""
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


def _run_call(worker: Worker, stop_early: Callable[[], bool]) -> None:
    """One call under a tool, given up early when the tool has already said enough. Raises WorkerError."""
    deadline = time.monotonic() + TOOL_CALL_TIMEOUT_S
    worker.begin_call()
    while not worker.answered(_POLL_S):
        if stop_early():
            raise WorkerError(RunStatus.RUNTIME_ERROR, "ended at the first findings")
        if time.monotonic() > deadline:
            raise WorkerError(RunStatus.TIMEOUT, f"no answer within {TOOL_CALL_TIMEOUT_S:.0f} s under the tool")
    worker.finish_call()


def _under_tool(
    state: WorkloadState, job: dict[str, Any], worker: Worker, stop_early: Callable[[], bool] = lambda: False
) -> bool | None:
    """Load, stage, call, let the tool finish. True or False: whether the outputs passed. Raises WorkerError."""
    try:
        worker.wait_ready(TOOL_START_TIMEOUT_S)
    except InfrastructureError as error:
        # Without the tool the same program starts: this is the tool's failure.
        raise WorkerError(RunStatus.CRASHED, str(error)) from error
    worker.load(job, TOOL_CALL_TIMEOUT_S)
    state.arena.arm()
    draw = state.checked[0]
    state.stage(draw)
    _run_call(worker, stop_early)
    # By the rule of a timed call: this draw need not be one that the library has qualified.
    passed = not failed(state.compare(draw, 0))
    worker.notify("quit")
    if worker.exit_code(TOOL_END_TIMEOUT_S) is None:
        raise WorkerError(RunStatus.TIMEOUT, f"the tool did not end within {TOOL_END_TIMEOUT_S:.0f} s")
    return passed


def count_instructions(state: WorkloadState, job: dict[str, Any]) -> InstructionEvidence:
    """Executed instructions per opcode. Tool failures are statuses, not exceptions."""
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
        passed = _under_tool(state, job, worker)
        log = _read(report)
        counts = ncu.parse(log)
        if not counts:
            raise ncu.ReportError("the report holds no instruction lines: " + ncu.reason(log))
        return InstructionEvidence(
            status=ToolStatus.OK, tool=version, counts=counts, kernels=ncu.kernels(log), outputs_match=passed
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


def sanitize(state: WorkloadState, job: dict[str, Any], tool: SafetyTool) -> SafetyEvidence:
    """One compute-sanitizer tool over one call. Tool failures are statuses, not exceptions."""
    axes = dict(state.case.workload.axes)
    path = find_tool("compute-sanitizer")
    if path is None:
        missing = "compute-sanitizer was not found on PATH, in CUDA_HOME or in the pip wheels; install it"
        return SafetyEvidence(tool=tool, status=ToolStatus.UNAVAILABLE, message=missing, axes=axes)
    version = tool_version(path)
    worker, report = _start(path, lambda log: sanitizer.arguments(tool, log), "--under-tool", "--private")
    first_finding: list[float] = []

    def said_enough() -> bool:
        if not first_finding and sanitizer.parse(_read(report)).findings:
            first_finding.append(time.monotonic())
        return bool(first_finding) and time.monotonic() - first_finding[0] > FINDINGS_GRACE_S

    fault: WorkerError | None = None
    try:
        _under_tool(state, job, worker, said_enough)
    except WorkerError as caught:
        fault = caught
        worker.notify("quit")
        if fault.status is not RunStatus.TIMEOUT:
            # The tool writes its summary when the process it watches ends.
            worker.exit_code(FINDINGS_GRACE_S)
    finally:
        parsed = sanitizer.parse(_read(report))
        worker.close()
    status, message = _ending(parsed, fault)
    return SafetyEvidence(
        tool=tool,
        status=status,
        message=message,
        version=version,
        findings=parsed.findings,
        finding_count=parsed.total,
        axes=axes,
    )


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
    """Start the sandbox under a tool whose report goes to a file in a folder of its own."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="ptxbench-tool-"))
    report = folder / "report"
    try:
        worker = Worker(sandbox_command(*flags, prefix=[path, *arguments(report)]))
    except InfrastructureError:
        folder.rmdir()
        raise
    worker.also_remove(folder)
    return worker, report


def _read(report: Path) -> str:
    try:
        return report.read_text(errors="replace")
    except OSError:
        return ""
