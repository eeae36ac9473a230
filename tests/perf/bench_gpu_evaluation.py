"""What an evaluation costs beyond the kernels it runs, and what keeping workload state saves (docs/performance.md)."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.agent.evaluation import Evaluator
from ptxbench.models import Proposal
from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.qualification import DRIFT_WARMUP
from ptxbench.records import Candidate, Evidence
from ptxbench.toolchain import Toolchain
from tests.gpu.conftest import ROOT

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from ptxbench.cases import Case

PRIMARY = (
    "gemm_n7168_k5120",
    "mha_with_lse_d128",
    "mha_with_lse_d128_causal",
    "mha_bwd_d128",
    "mha_bwd_d128_causal",
)
PAUSE_S = 2.5
"""Between rounds the oracle replaces the used sandbox, as it does while a model is thinking or tools run."""


def reference(name: str) -> str:
    return (ROOT / "generated/reference/h100" / name / "kernel.cu").read_text()


def pure_kernel_ms(evidence: Evidence) -> float:
    """Device time of every execution in one evaluation: checks, warm-ups, timed iterations, the baseline beside it."""
    total = 0.0
    for trial in evidence.run.trials:
        assert trial.timing is not None
        total += sum(trial.timing.span_ns) + (1 + trial.timing.warmup) * statistics.median(trial.timing.span_ns)
    assert evidence.run.baseline is not None
    drift = evidence.run.baseline.drift_span_ns
    return (total + sum(drift) + len(evidence.run.trials) * DRIFT_WARMUP * statistics.median(drift)) / 1e6


@pytest.mark.parametrize("name", PRIMARY)
def test_cached_evaluation(
    name: str, benchmark: BenchmarkFixture, cases: dict[str, Case], profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    """(a) wall time of one cached evaluation over the pure kernel time of the same executions."""
    case = cases[name]
    built = toolchain.build(Candidate(source=reference(name)), case.arch)
    assert profiler.evaluate(case, built) is not None
    ratios, kernels = [], []

    def evaluate() -> None:
        begin = time.perf_counter()
        evidence = profiler.evaluate(case, built)
        wall_ms = (time.perf_counter() - begin) * 1e3
        assert evidence is not None
        assert evidence.run.workload_state_cached
        kernels.append(pure_kernel_ms(evidence))
        ratios.append(wall_ms / kernels[-1])
        benchmark.extra_info["stages_ms"] = evidence.run.stages_ms

    benchmark.pedantic(evaluate, setup=lambda: time.sleep(PAUSE_S), rounds=4)
    benchmark.extra_info |= {
        "kernel_ms": round(statistics.median(kernels), 1),
        "wall_over_kernel": round(statistics.median(ratios), 3),
        "wall_over_kernel_range": [round(min(ratios), 3), round(max(ratios), 3)],
    }


@pytest.mark.parametrize("name", ["gemm_n7168_k5120", "mha_with_lse_d128"])
def test_evaluation_without_workload_state(
    name: str, benchmark: BenchmarkFixture, cases: dict[str, Case], toolchain: Toolchain
) -> None:
    """(b) the same evaluation when nothing is kept between candidates."""
    case = cases[name]
    built = toolchain.build(Candidate(source=reference(name)), case.arch)
    profiler = LocalProfiler(root=ROOT, state_budget_bytes=0)
    try:
        profiler.evaluate(case, built)
        last = benchmark.pedantic(lambda: profiler.evaluate(case, built), setup=lambda: time.sleep(PAUSE_S), rounds=3)
        assert last is not None
    finally:
        profiler.close()


@pytest.mark.parametrize("name", PRIMARY)
def test_source_to_verdict(
    name: str, benchmark: BenchmarkFixture, cases: dict[str, Case], profiler: LocalProfiler, tmp_path: Path
) -> None:
    """(c) from source text to the full verdict, nothing of it in the build cache, split by stage."""
    case = cases[name]
    cold = Toolchain.discover(cache_dir=tmp_path)
    # The first build in an empty cache also prepares what all builds share.
    cold.build(Candidate(source="// warm\n"), case.arch)
    evaluator = Evaluator(lambda: cold, compile_slots=2)
    proposal = Proposal(candidate=Candidate(source=reference(name)), origin="reference")
    found = benchmark.pedantic(lambda: evaluator.evaluate(case, proposal, profiler), rounds=1)
    assert found.verdict.correct
    benchmark.extra_info["stages_ms"] = found.stages_ms
