"""Where a kernel that does not end waits is found on the device, and is the right line of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptxbench.agent.evaluation import Evaluator
from ptxbench.agent.feedback import feedback
from ptxbench.models import PastTurn, Proposal
from ptxbench.profiler.tools import find_tool
from ptxbench.records import NO_KERNEL_RAN, Candidate, RunEvidence, RunStatus, WaitingPlace
from tests.fixtures.kernels import load
from tests.unit.factories import make_record

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler import Profiler
    from ptxbench.toolchain import Toolchain

needs_debugger = pytest.mark.skipif(find_tool("cuda-gdb") is None, reason="needs cuda-gdb")

PROLOGUE = """#include <cstdint>
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

"""
EXPORT = """
static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  LAUNCH
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
BARRIER = (
    PROLOGUE
    + """__device__ __noinline__ void spin(volatile int* flag) {
  while (*flag == 0) __nanosleep(100);  // the first warp
}

__global__ void pipeline(volatile int* flag) {
  __shared__ uint64_t full;
  const uint32_t bar = static_cast<uint32_t>(__cvta_generic_to_shared(&full));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
  __syncthreads();
  if (threadIdx.x < 32) {
    spin(flag);
  } else {
    uint32_t done = 0;
    while (done == 0) {  // others
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done) : "r"(bar) : "memory");  // others
    }
  }
}
"""
    + EXPORT.replace(
        "LAUNCH",
        "static int* flag = nullptr; if (!flag) { cudaMalloc(&flag, 4); cudaMemset(flag, 0, 4); } "
        "pipeline<<<200, 128>>>(flag);",
    )
)
HOST = PROLOGUE + EXPORT.replace("LAUNCH", "volatile int wait = 1; while (wait) {}")


class Looked:
    """One evaluated candidate, with the lines of its places."""

    def __init__(self, source: str, case: Case, profiler: Profiler, toolchain: Toolchain) -> None:
        candidate = Candidate(source=source)
        proposal = Proposal(origin="test", candidate=candidate)
        found = Evaluator(lambda: toolchain, compile_slots=1).evaluate(case, proposal, profiler)
        assert found.build is not None
        assert found.evidence is not None
        self.run: RunEvidence = found.evidence.run
        record = make_record(case=case, build=found.build, evidence=found.evidence, verdict=found.verdict)
        self.text = feedback(case, PastTurn(record, source), turns_left=3, toolchain=toolchain)
        self._lines = toolchain.source_lines(candidate, case.arch, toolchain.build(candidate, case.arch))
        self._source = source.splitlines()

    def line(self, place: WaitingPlace) -> str:
        assert self._lines is not None
        assert place.offset is not None, place
        numbers = self._lines.at(place.kernel, place.offset)
        return self._source[numbers[0] - 1] if numbers else ""


@needs_debugger
def test_an_endless_kernel_is_found_at_its_line(gemm: Case, profiler: Profiler, toolchain: Toolchain) -> None:
    looked = Looked(load("endless"), gemm, profiler, toolchain)
    assert looked.run.status is RunStatus.TIMEOUT
    assert looked.run.waiting, (looked.run.waiting_unknown, looked.run.stages_ms)
    (place,) = looked.run.waiting
    assert (place.kernel, place.threads, place.blocks) == ("_Z13wait_for_everv", 1, 1)
    assert "nanosleep" in looked.line(place)
    assert "nanosleep.u32 1000" in looked.text
    assert looked.run.stages_ms["locate"] < 10_000


@needs_debugger
def test_warps_that_wait_at_two_places_are_told_apart(gemm: Case, profiler: Profiler, toolchain: Toolchain) -> None:
    looked = Looked(BARRIER, gemm, profiler, toolchain)
    assert looked.run.waiting, (looked.run.waiting_unknown, looked.run.stages_ms)
    assert {place.kernel for place in looked.run.waiting} == {"_Z8pipelinePVi"}
    assert 0.8 < sum(place.threads for place in looked.run.waiting) / (200 * 128) <= 1.0
    assert max(place.blocks for place in looked.run.waiting) <= 200
    assert "// others" in looked.text, looked.text
    assert "// the first warp" in looked.text or "In a function that the kernel calls" in looked.text, looked.text


@needs_debugger
def test_host_code_that_does_not_return_is_told_apart(gemm: Case, profiler: Profiler, toolchain: Toolchain) -> None:
    looked = Looked(HOST, gemm, profiler, toolchain)
    assert looked.run.status is RunStatus.TIMEOUT
    assert looked.run.waiting == ()
    assert looked.run.waiting_unknown == NO_KERNEL_RAN
    assert "your host code did not return" in looked.text


@needs_debugger
def test_the_device_is_usable_behind_a_look(
    gemm: Case, profiler: Profiler, toolchain: Toolchain, reference_gemm: str
) -> None:
    Looked(load("endless"), gemm, profiler, toolchain)
    built = toolchain.build(Candidate(source=reference_gemm), gemm.arch)
    after = profiler.evaluate(gemm, built)
    assert after is not None
    assert after.run.status is RunStatus.COMPLETED, after.run.message
    assert after.run.waiting_unknown == ""
