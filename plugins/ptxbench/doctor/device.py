"""Checks of the GPU and of the tools that look into it. Nothing here starts CUDA in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ptxbench.cases import Arch
from ptxbench.doctor.check import Check, answer_of, gap, installed, ok, unknown
from ptxbench.profiler.tools import find_tool, tool_version

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
PROCESS_STATUS = Path("/proc/self/status")
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
"""Absent where the kernel has no Yama, or does not restrict tracing by it; see ptrace(2)."""
CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
"""Bits of the capability set; see capabilities(7)."""

NO_GPU = "nothing is measured here; stored evidence is judged instead, and what has none is unknown"


def check_gpu(archs: Iterable[Arch], smi: str | None = None) -> Check:
    """Driver, device, and the architecture that it is."""
    smi = smi or shutil.which("nvidia-smi")
    query = [str(smi), "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    answer = answer_of(query) if smi else None
    if not answer:
        found = "nvidia-smi finds no device" if smi else "no nvidia-smi on PATH"
        return gap("GPU", found, NO_GPU, "use a machine with a Hopper GPU and NVIDIA driver 580 or newer")
    devices = [[field.strip() for field in line.split(",")] for line in answer.splitlines()]
    covered: list[str] = []
    for name, capability, driver in (device for device in devices if len(device) == 3):
        arch = next((arch.name for arch in archs if _text(arch.compute_capability) == capability), None)
        covered.append(f"{name} (compute capability {capability}, {arch or 'no known architecture'}, driver {driver})")
    found = "; ".join(covered) or answer
    if any("no known architecture" not in device for device in covered):
        return ok("GPU", found)
    return gap("GPU", found, NO_GPU, "use a device of an architecture under knowledge_packs")


def _text(capability: tuple[int, int]) -> str:
    return ".".join(str(part) for part in capability)


def check_counter_permission(parameters: Path = DRIVER_PARAMETERS, status: Path = PROCESS_STATUS) -> Check:
    """Whether this user may read the GPU's performance counters, without which ncu ends with ERR_NVGPUCTRPERM."""
    name, cost = "counter permission", "instruction counts fail, so the target indicator is unknown"
    remedy = (
        "ask the administrator for the driver option NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN"
    )
    restricted = _field(parameters, "RmProfilingAdminOnly")
    if restricted is None:
        return unknown(name, f"no RmProfilingAdminOnly in {parameters}", cost, "look again on a machine with a GPU")
    if restricted == "0":
        return ok(name, "every user may read counters")
    effective = _field(status, "CapEff")
    if effective is None:
        return unknown(name, "counters are for administrators; the process's rights cannot be told", cost, remedy)
    if _holds(effective, CAP_SYS_ADMIN):
        return ok(name, "counters are for administrators, and this process has CAP_SYS_ADMIN")
    return gap(name, "counters are for administrators, and this process has no CAP_SYS_ADMIN", cost, remedy)


def _holds(capabilities: str, bit: int) -> bool:
    return bool(int(capabilities, 16) >> bit & 1)


def _field(path: Path, name: str) -> str | None:
    """The value of a ``NAME: VALUE`` line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    return next(values, None)


def check_ncu() -> Check:
    """Nsight Compute."""
    return _tool(
        "Nsight Compute",
        "ncu",
        "no instruction counts, so the target indicator is unknown",
        "install Nsight Compute of CUDA 13 and put ncu on PATH",
    )


def check_sanitizer() -> Check:
    """compute-sanitizer."""
    return _tool(
        "compute-sanitizer",
        "compute-sanitizer",
        "no memcheck, so memory safety is unknown",
        "pip install 'ptxbench[gpu]', or put compute-sanitizer of CUDA 13 on PATH",
    )


def check_debugger(scope: Path = PTRACE_SCOPE, status: Path = PROCESS_STATUS) -> Check:
    """cuda-gdb, and whether this user may attach it to a sandbox, which is not its child."""
    name, cost = "cuda-gdb", "feedback on a kernel that does not end cannot say where it waits"
    path = find_tool("cuda-gdb")
    if path is None:
        return gap(name, "no cuda-gdb", cost, "install the CUDA toolkit's cuda-gdb and put it on PATH")
    lines = (answer_of([path, "--version"]) or "").splitlines()
    found = next((line.rpartition(") ")[2] for line in lines if "cuda-gdb" in line), "cuda-gdb of unknown version")
    try:
        restricted = scope.read_text().strip() != "0"
    except OSError:
        restricted = False
    if restricted and not _holds(_field(status, "CapEff") or "0", CAP_SYS_PTRACE):
        remedy = "set kernel.yama.ptrace_scope to 0, or run with CAP_SYS_PTRACE"
        return gap(name, f"{found}, but only a parent may trace a process here (ptrace_scope)", cost, remedy)
    return ok(name, found)


def _tool(name: str, program: str, cost: str, remedy: str) -> Check:
    path = find_tool(program)
    return ok(name, f"{program} {tool_version(path)}") if path else gap(name, f"no {program}", cost, remedy)


def check_cupti() -> Check:
    """The CUPTI binding that reads latencies."""
    found = installed("cupti-python")
    if found is None:
        return gap(
            "CUPTI", "cupti-python is not installed", "no latency can be measured", "pip install 'ptxbench[gpu]'"
        )
    if not found.split()[1].startswith("13.0."):
        return gap(
            "CUPTI", found, "it needs other CUPTI libraries than CUDA 13.0 has", "pip install cupti-python==13.0.1"
        )
    return ok("CUPTI", found)


def check_torch() -> Check:
    """torch, which makes the references."""
    found = installed("torch")
    cost, remedy = "no reference outputs, so nothing can be measured", "pip install 'ptxbench[gpu]'"
    if found is None:
        return gap("torch", "torch is not installed", cost, remedy)
    return gap("torch", f"{found}, without CUDA", cost, remedy) if found.endswith("+cpu") else ok("torch", found)


def check_baselines() -> tuple[Check, ...]:
    """The libraries that speedups divide by (PROTOCOL 3)."""
    libraries = (
        ("cuBLAS", "GEMM", ("nvidia-cublas", "nvidia-cublas-cu13")),
        ("cuDNN", "attention", ("nvidia-cudnn-cu13", "nvidia-cudnn")),
        ("FlashInfer", "GQA", ("flashinfer-python",)),
    )
    return tuple(
        ok(f"baseline {name}", found)
        if (found := installed(*packages))
        else gap(f"baseline {name}", "not installed", f"no speedup of {of} workloads", "pip install 'ptxbench[gpu]'")
        for name, of, packages in libraries
    )
