"""(d) the baseline GEMM's latency as the profiler reads it, against a plain CUPTI loop and CUDA events.

The three read the same library call in turns, iteration by iteration, each behind the same rewriting of inputs and
outputs, so that they see the same caches, clocks and heat: on a power-limited device the latency itself moves by
several percent between a burst and a sustained series.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.profiler.baselines import bind
from ptxbench.profiler.bound_call import Bound
from ptxbench.profiler.oracle import baseline_worker
from ptxbench.profiler.qualification import Baselines
from ptxbench.profiler.sandbox import Cupti, Recorder
from ptxbench.profiler.state import WorkloadState
from ptxbench.profiler.worker import Worker

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from ptxbench.cases import Case

REPEATS, WARMUP, ITERATIONS = 10, 10, 50


class Readings(NamedTuple):
    """Medians of one repeat, in ns."""

    profiler: float
    cupti: float
    events: float


def read_all(state: WorkloadState, worker: Worker, bound: Bound, recorder: Recorder) -> Readings:
    """One repeat: every iteration is read in each of the three ways."""
    import torch

    events: list[float] = []
    worker.request("collect")
    recorder.collect()
    for index in range(WARMUP + ITERATIONS):
        state.stage_fresh(state.source.draw())
        worker.call()
        state.stage_fresh(state.source.draw())
        begin_ns = recorder.now()
        bound.call()
        torch.cuda.synchronize()
        recorder.record(begin_ns, recorder.now(), kept=True)
        state.stage_fresh(state.source.draw())
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        bound.call()
        end.record()
        torch.cuda.synchronize()
        if index >= WARMUP:
            events.append(begin.elapsed_time(end) * 1e6)
    profiler = worker.collect(WARMUP + ITERATIONS).spans[WARMUP:]
    cupti = recorder.collect()["spans"][WARMUP:]
    return Readings(statistics.median(profiler), float(statistics.median(cupti)), statistics.median(events))


def test_baseline_latency(benchmark: BenchmarkFixture, gemm: Case) -> None:
    baselines = Baselines(baseline_worker)
    repeats: list[Readings] = []
    try:
        state = WorkloadState(gemm)
        worker = baselines.bind(state)
        bound = bind(gemm.baseline.call, state.arena.tensors, causal=gemm.causal)
        recorder = Recorder(Cupti())
        benchmark.pedantic(
            lambda: repeats.append(read_all(state, worker, bound, recorder)), rounds=REPEATS, warmup_rounds=1
        )
    finally:
        baselines.close()
    repeats = repeats[1:]
    ratios = [repeat.profiler / repeat.cupti for repeat in repeats]
    benchmark.extra_info |= {
        "median_us": {name: round(statistics.median(column) / 1e3, 2) for name, column in columns(repeats).items()},
        "spread": {name: round((max(c) - min(c)) / statistics.median(c), 4) for name, c in columns(repeats).items()},
        "profiler_over_cupti": round(statistics.median(ratios), 4),
        "profiler_over_cupti_range": [round(min(ratios), 4), round(max(ratios), 4)],
        "profiler_over_events": round(statistics.median(repeat.profiler / repeat.events for repeat in repeats), 4),
    }


def columns(repeats: list[Readings]) -> dict[str, list[float]]:
    return {name: [getattr(repeat, name) for repeat in repeats] for name in Readings._fields}
