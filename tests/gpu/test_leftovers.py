"""A candidate that looks into staging memory while its object is loaded finds nothing of the call before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ptxbench.records import Candidate, RunEvidence, RunStatus
from tests.fixtures.kernels import load

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

TELLS = """static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  TVM_FFI_THROW(RuntimeError) << "C lies at " << reinterpret_cast<unsigned long long>(C.data_ptr()) << ".";
}
"""
LOOKS = """static unsigned long long left[64];
static const cudaError_t code = cudaMemcpy(left, reinterpret_cast<void*>(ADDRESSull), sizeof(left), cudaMemcpyDefault);

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  int found = 0;
  for (unsigned long long word : left) found += word != 0;
  const bool there = reinterpret_cast<unsigned long long>(C.data_ptr()) == ADDRESSull;
  TVM_FFI_THROW(RuntimeError) << "same place " << there << ", code " << code << ", words " << found << ".";
}
"""


def looking(run: str) -> str:
    """The generic GEMM with another entry."""
    head, _, tail = load("generic_gemm").partition("static void run(")
    return head + run + tail.partition("\n}\n")[2]


def test_an_initializer_finds_nothing_of_the_last_call(
    gemm: Case, profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    def run(source: str) -> RunEvidence:
        built = toolchain.build(Candidate(source=source), gemm.arch)
        assert built.so_path is not None, built.build.log
        evidence = profiler.evaluate(gemm, built)
        assert evidence is not None
        return evidence.run

    told = re.search(r"C lies at (\d+)\.", run(looking(TELLS)).message)
    assert told is not None
    assert run(load("generic_gemm")).status is RunStatus.COMPLETED  # its last call leaves a right C
    said = run(looking(LOOKS.replace("ADDRESS", told[1]))).message
    found = re.search(r"same place (\d), code (\d+), words (\d+)\.", said)
    assert found is not None, said
    if found[1] != "1":
        pytest.skip("staging memory lies elsewhere in each process: nothing was looked at")
    assert (found[2], found[3]) == ("0", "0"), said
