"""What a compile costs: the naive command line, ours, and the build cache (docs/performance.md)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.cases import load_arch
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Toolchain
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

SMALL_KERNEL = """
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
__global__ void twice(const __nv_bfloat16* a, __nv_bfloat16* c, int64_t n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    c[i] = __float2bfloat16(2.0f * __bfloat162float(a[i]));
}
static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView C) {
  cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  twice<<<1024, 256, 0, stream>>>(static_cast<const __nv_bfloat16*>(A.data_ptr()),
                                  static_cast<__nv_bfloat16*>(C.data_ptr()), A.size(0));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
ROUNDS = 5


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    toolchain = Toolchain.discover(cache_dir=tmp_path)
    assert toolchain.build(Candidate(source=SMALL_KERNEL), load_arch(ROOT, "h100")).build.status is BuildStatus.OK
    return toolchain


def test_naive(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """One nvcc command with TVM-FFI's own headers."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("the naive command is measured with an nvcc on PATH")
    import tvm_ffi.libinfo

    (tmp_path / "kernel.cu").write_text(SMALL_KERNEL)
    includes = [f"-I{path}" for path in (*tvm_ffi.libinfo.include_paths(),)]
    command = [nvcc, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-gencode"]
    command += ["arch=compute_90a,code=sm_90a", *includes, "kernel.cu", "-o", "kernel.so"]
    benchmark.pedantic(lambda: subprocess.run(command, cwd=tmp_path, check=True), rounds=ROUNDS, warmup_rounds=1)


def test_ours(benchmark: BenchmarkFixture, toolchain: Toolchain) -> None:
    """A candidate that the cache has not seen: compile, link, screen, disassemble, hash."""
    arch = load_arch(ROOT, "h100")
    number = iter(range(1000))

    def build() -> None:
        source = f"{SMALL_KERNEL}// {next(number)}\n"
        assert toolchain.build(Candidate(source=source), arch).build.status is BuildStatus.OK

    benchmark.pedantic(build, rounds=ROUNDS, warmup_rounds=1)


def test_cache_hit(benchmark: BenchmarkFixture, toolchain: Toolchain) -> None:
    """A candidate that the cache holds."""
    arch = load_arch(ROOT, "h100")
    first = toolchain.build(Candidate(source=SMALL_KERNEL), arch)
    built = benchmark.pedantic(lambda: toolchain.build(Candidate(source=SMALL_KERNEL), arch), rounds=20)
    assert built.build == first.build
