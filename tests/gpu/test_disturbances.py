"""What disturbs a measurement is seen on a real device: another process that computes on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.records import Candidate, DisturbanceKind, Evidence
from ptxbench.verdict import Flag, judge

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

COMPUTES = """
import sys, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""
SEEN_WITHIN_S = 5.0
"""NVML's samples of utilization are up to a second apart."""


def evaluate(case: Case, source: str, profiler: LocalProfiler, toolchain: Toolchain) -> Evidence:
    evidence = profiler.evaluate(case, toolchain.build(Candidate(source=source), case.arch))
    assert evidence is not None
    return evidence


@pytest.fixture
def busy() -> Iterator[int]:
    """The number of a process that computes without a pause."""
    with subprocess.Popen([sys.executable, "-c", COMPUTES], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield process.pid
        finally:
            process.kill()


def seen_by_nvml(pid: int) -> str:
    """Why this driver does not tell of a process that computes; empty where it does."""
    nvml: Any = pytest.importorskip("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    if pid not in {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}:
        return "NVML does not list it by this number"
    deadline = time.monotonic() + SEEN_WITHIN_S
    since = int((time.time() - 1) * 1e6)
    why = "NVML has no sample of its utilization"
    while time.monotonic() < deadline:
        try:
            if any(
                sample.pid == pid and sample.smUtil for sample in nvml.nvmlDeviceGetProcessUtilization(handle, since)
            ):
                return ""
        except nvml.NVMLError as error:
            why = f"NVML tells of no utilization by process: {error}"
        time.sleep(0.2)
    return why


def test_a_quiet_device_is_not_disturbed(
    gemm: Case, reference_gemm: str, profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    evidence = evaluate(gemm, reference_gemm, profiler, toolchain)
    assert [found for found in evidence.run.disturbances if found.disturbing] == []


def test_another_process_that_computes_withholds_the_speedup(
    gemm: Case, reference_gemm: str, profiler: LocalProfiler, toolchain: Toolchain, busy: int
) -> None:
    if why := seen_by_nvml(busy):
        pytest.skip(f"process {busy} computes, and {why}")
    evidence = evaluate(gemm, reference_gemm, profiler, toolchain)
    kinds = [found.kind for found in evidence.run.disturbances]
    assert DisturbanceKind.FOREIGN_PROCESS in kinds, evidence.run.disturbances
    (found,) = [each for each in evidence.run.disturbances if each.kind is DisturbanceKind.FOREIGN_PROCESS]
    assert str(busy) in found.message
    built = toolchain.build(Candidate(source=reference_gemm), gemm.arch)
    verdict = judge(gemm, built.build, evidence)
    assert Flag.DISTURBED in verdict.flags
    assert verdict.speedup is None
    assert verdict.latency_ms is not None
