"""The pattern of mismatches on the device: the same as on the CPU, in bounded memory, and part of real evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")


from ptxbench.profiler.mismatch import mismatch_pattern  # noqa: E402 - torch first
from ptxbench.records import Candidate  # noqa: E402
from ptxbench.records.mismatch import MismatchPattern  # noqa: E402
from ptxbench.verdict import judge  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.fixtures.kernels import load  # noqa: E402

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

MEMORY_BOUND = 512 << 20


def pair(shape: tuple[int, ...]):
    generator = torch.Generator().manual_seed(math.prod(shape))
    reference = torch.randn(shape, generator=generator).bfloat16()
    output = reference.clone()
    output[..., ::2, 64:] *= 3
    output[..., -1, :] = math.nan
    return output, reference


@pytest.mark.parametrize("shape", [(8192, 1024), (2, 3, 777, 128), (3, 5000), (100,)])
def test_the_device_gives_what_the_cpu_gives(shape: tuple[int, ...]) -> None:
    output, reference = pair((1, *shape)) if len(shape) == 1 else pair(shape)
    output, reference = output.reshape(shape), reference.reshape(shape)
    on_cpu = mismatch_pattern(output, reference, atol=1e-2, rtol=1e-2)
    on_device = mismatch_pattern(output.cuda(), reference.cuda(), atol=1e-2, rtol=1e-2)
    assert on_cpu is not None
    assert on_device is not None
    apart = {"slope", "correlation", "column_major"}
    assert on_device.model_dump(exclude=apart) == on_cpu.model_dump(exclude=apart)
    assert on_device.slope == pytest.approx(on_cpu.slope, rel=1e-3)
    assert on_device.correlation == pytest.approx(on_cpu.correlation, abs=1e-3)


def test_memory_and_time_stay_small_beside_a_workload() -> None:
    reference = torch.randn(4, 48, 4096, 128, device="cuda", dtype=torch.bfloat16)
    output = reference * 1.5
    mismatch_pattern(output, reference, atol=1e-2, rtol=1e-2)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    found = mismatch_pattern(output, reference, atol=1e-2, rtol=1e-2)
    end.record()
    torch.cuda.synchronize()
    assert found is not None
    assert found.slope == pytest.approx(1.5, rel=1e-2)
    assert torch.cuda.max_memory_allocated() - before < MEMORY_BOUND
    assert begin.elapsed_time(end) < 1000


def test_evidence_of_an_unwritten_row_says_which(profiler: LocalProfiler, toolchain: Toolchain, gemm: Case) -> None:
    built = toolchain.build(Candidate(source=load("partial_write")), gemm.arch)
    evidence = profiler.evaluate(gemm, built)
    assert evidence is not None
    assert judge(gemm, built.build, evidence).rule == "check.mismatch"
    where = evidence.run.trials[0].checks[0].outputs[0].where
    assert where is not None
    stored = MismatchPattern.model_validate_json((ROOT / "tests/data/feedback/partial_write_where.json").read_bytes())
    apart = {"column_major"}  # of random data: near zero, and never the same
    assert where.model_dump(exclude=apart) == stored.model_dump(exclude=apart)
