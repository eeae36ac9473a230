"""How many turns a minute one GPU judges while models answer: concurrency 4, 16 and 48 (docs/performance.md).

Models answer over HTTP after a latency drawn from one fixed distribution, with kernels in about the mix that the paper
saw on Hopper; compiling, measuring, sanitizing and counting are real. A stretch in the middle is measured, when every
trajectory has begun and none has ended.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.agent import Engine, Evaluator, Profilers, RunStore, TrajectoryPlan, suite_identity
from ptxbench.agent.budget import Budget
from ptxbench.agent.conversation import Connection, ConversingModel
from ptxbench.agent.meter import Meter, Progress
from ptxbench.models.entry import ModelEntry
from ptxbench.models.registry import open_client
from ptxbench.packs import load_pack
from ptxbench.profiler.local import LocalProfiler
from ptxbench.records import Candidate
from ptxbench.toolchain import Toolchain
from tests.fixtures.kernels import load
from tests.gpu.conftest import ROOT
from tests.support.llm_script import Step, kernel
from tests.support.llm_server import LlmServer, Seen

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from ptxbench.cases import Case
    from ptxbench.profiler import Profiler

MEDIAN_LATENCY_S, SPREAD = 30.0, 0.5
"""Log-normal. Models that reason take longer; what counts is the ratio to a turn's time on the GPU."""
MIX = {"": 743, "compile_error": 325, "illegal_address": 322, "wrong_result": 296, "endless": 214}
"""Fixture (none: the reference solution) and turns of its kind in the paper's data for Hopper, but for 20 of 1,920."""
TURNS = 50
RAMP_S, MEASURED_S = 40.0, 85.0


def script(reference: str) -> LlmServer:
    """A server whose every answer is a kernel of its own: what was built or measured before is never asked again."""
    chance, lock = random.Random(2026), threading.Lock()

    def answer(seen: Seen) -> Step:
        with lock:
            latency_s = MEDIAN_LATENCY_S * math.exp(chance.gauss(0.0, SPREAD))
            (name,) = chance.choices(list(MIX), list(MIX.values()))
        source = load(name) if name else reference
        return kernel(f"// answer {seen.number}\n{source}", delay_s=latency_s)

    return LlmServer(answer)


@contextmanager
def running(
    case: Case,
    concurrency: int,
    server: LlmServer,
    profiler: Profiler,
    folder: Path,
    meter: Meter,
    stop: threading.Event,
) -> Iterator[None]:
    """So many conversations in progress."""
    store = RunStore.open(folder / "run", {"primary": suite_identity([case])}, {"simulated": TURNS})
    entry = ModelEntry(name="simulated", provider="openai", model="simulated", api_base=server.url)
    client = open_client(entry, run_folder=store.folder)
    connection = Connection(client, store, Budget(), meter, stop.is_set, lambda: nullcontext(None))
    pack = load_pack(ROOT, case.arch.name, "full")
    model = ConversingModel(entry, TURNS, lambda _: pack, lambda: connection)
    plans = [TrajectoryPlan(model, case, 0, trajectory, TURNS) for trajectory in range(concurrency)]
    engine = Engine(
        plans,
        store=store,
        evaluator=Evaluator(lambda: Toolchain.discover(cache_dir=folder / "cache"), 16, meter),
        profilers=Profilers("local", lambda _: profiler),
        concurrency=concurrency,
        stop=stop,
        meter=meter,
    )
    # Asking for one turn starts all of them.
    asking = threading.Thread(target=engine.turn, args=(plans[0].key(0),), daemon=True)
    asking.start()
    try:
        yield
    finally:
        engine.close()
        model.close()


def between(before: Progress, after: Progress) -> dict[str, float]:
    seconds = after.elapsed_s - before.elapsed_s
    return {
        "turns_per_minute": round(60 * (after.worked - before.worked) / seconds, 1),
        "gpu_busy_share": round((after.busy_s - before.busy_s) / seconds, 3),
    }


@pytest.mark.parametrize("concurrency", [4, 16, 48])
def test_rollout_throughput(
    concurrency: int, benchmark: BenchmarkFixture, gemm: Case, reference_gemm: str, tmp_path: Path
) -> None:
    stop = threading.Event()
    profiler = LocalProfiler(root=ROOT, stopped=stop.is_set)
    built = Toolchain.discover().build(Candidate(source=reference_gemm), gemm.arch)
    assert profiler.evaluate(gemm, built) is not None  # the workload's state is there before the clock runs
    meter = Meter()
    benchmark.extra_info |= {"model_latency_median_s": MEDIAN_LATENCY_S}

    def stretch() -> None:
        time.sleep(RAMP_S)
        before = meter.progress()
        time.sleep(MEASURED_S)
        # At once: ending the trajectories takes a while, and what cuts it short must not cost the figures.
        benchmark.extra_info |= between(before, meter.progress())

    with script(reference_gemm) as server, running(gemm, concurrency, server, profiler, tmp_path, meter, stop):
        benchmark.pedantic(stretch, rounds=1)
