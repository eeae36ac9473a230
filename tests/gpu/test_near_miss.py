"""A correctness call that misses by one element is made once more on another draw, and that one decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptxbench.records import Candidate, Outcome
from ptxbench.verdict import Rule, judge
from tests.fixtures.kernels import load

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

SPOILED = """static int calls = 0;

__global__ void spoil(bf16* c) { c[4711] = __float2bfloat16(__bfloat162float(c[4711]) + 1000.0f); }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const auto problem = problem_of(A, B, C);
  launch_gemm(gemm, problem);
  if (++calls <= SPOILED_CALLS) {
    spoil<<<1, 1, 0, static_cast<cudaStream_t>(TVMFFIEnvGetStream(C.device().device_type, C.device().device_id))>>>(
        static_cast<bf16*>(C.data_ptr()));
  }
}
"""


def spoiled(calls: int) -> str:
    """The generic GEMM, with one wrong element in each of its first calls."""
    source = load("generic_gemm")
    head, _, tail = source.partition("static void run(")
    return head + SPOILED.replace("SPOILED_CALLS", str(calls)) + tail.partition("\n}\n")[2]


@pytest.mark.parametrize(("calls", "outcome"), [(1, Outcome.CORRECT), (1_000, Outcome.NUMERICAL_ERROR)])
def test_another_draw_decides(
    calls: int, outcome: Outcome, gemm: Case, profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    built = toolchain.build(Candidate(source=spoiled(calls)), gemm.arch)
    assert built.so_path is not None, built.build.log
    before = profiler.evaluate(gemm, toolchain.build(Candidate(source=load("generic_gemm")), gemm.arch))
    evidence = profiler.evaluate(gemm, built)
    assert evidence is not None
    first = evidence.run.trials[0]
    assert first.near_miss is not None
    assert [output.mismatched for output in first.near_miss.outputs] == [1]
    assert "redraw" in evidence.run.stages_ms
    verdict = judge(gemm, built.build, evidence)
    assert verdict.outcome is outcome, verdict.message
    if outcome is Outcome.CORRECT:
        assert "1 elements beyond it" in verdict.message
    else:
        assert verdict.rule == Rule.MISMATCH
        assert len(evidence.run.trials) == 1
    # Nothing of it is left for the next one.
    assert before is not None
    after = profiler.evaluate(gemm, toolchain.build(Candidate(source=load("generic_gemm")), gemm.arch))
    assert after is not None
    assert all(trial.near_miss is None for trial in after.run.trials)
    assert len(after.run.trials) == len(before.run.trials) == gemm.trials
