"""(d) the baseline GEMM's latency as the profiler reads it, against a plain CUPTI loop and CUDA events.

The three read the same call in one process family, in turns, each timed iteration behind the same rewriting of inputs
and outputs, so that caches and clocks are the same.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from ptxbench.profiler.baselines import Bound, bind
from ptxbench.profiler.evaluation import Baselines
from ptxbench.profiler.oracle import baseline_worker
from ptxbench.profiler.sandbox import Recorder
from ptxbench.profiler.state import WorkloadState

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from ptxbench.cases import Case

REPEATS, WARMUP, ITERATIONS = 10, 10, 50


def read_cupti(state: WorkloadState, bound: Bound, recorder: Recorder) -> float:
    """Median ns of a plain loop in this process under CUPTI."""
    import torch

    for index in range(WARMUP + ITERATIONS):
        state.stage_fresh()
        begin = recorder.now()
        bound.call()
        torch.cuda.synchronize()
        if index >= WARMUP:
            recorder.record(begin, recorder.now())
    return float(statistics.median(recorder.collect()["spans"]))


def read_events(state: WorkloadState, bound: Bound) -> float:
    """Median ns of the same loop by CUDA events around the call."""
    import torch

    samples: list[float] = []
    for index in range(WARMUP + ITERATIONS):
        state.stage_fresh()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        bound.call()
        end.record()
        torch.cuda.synchronize()
        if index >= WARMUP:
            samples.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(samples)


def test_baseline_latency(benchmark: BenchmarkFixture, gemm: Case) -> None:
    worker = baseline_worker()
    baselines = Baselines(worker)
    readings: dict[str, list[float]] = {"profiler": [], "cupti": [], "events": []}
    try:
        state = WorkloadState(gemm)
        bound = bind(gemm.baseline.call, state.arena.tensors, causal=gemm.causal)
        recorder = Recorder()

        def read() -> None:
            readings["profiler"].append(statistics.median(baselines.time(state, WARMUP, ITERATIONS).span_ns))
            readings["cupti"].append(read_cupti(state, bound, recorder))
            readings["events"].append(read_events(state, bound))

        benchmark.pedantic(read, rounds=REPEATS, warmup_rounds=1)
    finally:
        baselines.close()
    medians = {name: statistics.median(values[1:]) for name, values in readings.items()}
    benchmark.extra_info |= {
        "median_us": {name: round(value / 1e3, 2) for name, value in medians.items()},
        "spread": {name: round((max(v[1:]) - min(v[1:])) / medians[name], 4) for name, v in readings.items()},
        "profiler_over_cupti": round(medians["profiler"] / medians["cupti"], 4),
        "profiler_over_events": round(medians["profiler"] / medians["events"], 4),
    }
