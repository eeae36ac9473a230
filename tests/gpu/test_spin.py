"""Kernels of known duration, from 2 us to 10 ms, read by the path that times candidates.

A thread spins for a number of SM clocks and tells how many it spent. What a clock takes is known from a spin of 1 ms
right behind each, which the device's timer (ticks of up to 1 us) measures to 0.1%. A kernel that spins not at all has a
span too: starting it, reading a word and writing two. That is no error of the reading; it is measured in the same way
and taken off. The figures go to ``$PTXBENCH_EVIDENCE_DIR/spin.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from ptxbench.profiler.gpu_lock import gpu_lock
from ptxbench.profiler.procedure import timed_loop, timing_of
from ptxbench.profiler.worker import Worker, sandbox_command
from ptxbench.records import Candidate
from tests.gpu.conftest import HERE
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.arena import Arena
    from ptxbench.toolchain import Toolchain

DURATIONS_US = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
CALIBRATION_US = 1_000
ITERATIONS = 21
WARMUP = 10
ALLOWED_SHARE, ALLOWED_NS = 0.02, 500.0
START_NS = 3_000.0
"""A kernel that does nothing reads some 1 to 2 us (CUPTI, H100 and H200)."""


class Spin(NamedTuple):
    """One call, in ns but for ``clocks``."""

    span_ns: int
    wall_ns: int
    clocks: int
    timer_ns: int


class Staged:
    """A workload's state as far as the timed loop asks for it: every call has its number of clocks, and is read out."""

    def __init__(self, arena: Arena, plan: list[int]) -> None:
        self.source = self
        self._arena = arena
        self._plan = plan
        self._staged = 0
        self.spent: list[tuple[int, int]] = []

    def draw(self) -> None:
        """No data is drawn."""

    def stage_fresh(self, _: None) -> None:
        self.read()
        self._arena.tensors["asked"].fill_(self._plan[self._staged])
        self._arena.wait()
        self._staged += 1

    def read(self) -> None:
        """Keep what the last call told."""
        if self._staged:
            clocks, timer_ns = self._arena.tensors["spent"].tolist()
            self.spent.append((clocks, timer_ns))


class Spinner:
    """The spin kernel in a sandbox."""

    def __init__(self, arena: Arena, worker: Worker, clocks_per_us: float) -> None:
        self._arena, self._worker, self._clocks_per_us = arena, worker, clocks_per_us

    def run(self, duration_us: float) -> list[tuple[Spin, Spin]]:
        """Calls of a duration, each with the calibrating call behind it."""
        clocks = [int(duration_us * self._clocks_per_us), int(CALIBRATION_US * self._clocks_per_us)]
        plan = [clocks[1], *clocks * ITERATIONS]
        state = Staged(self._arena, plan)
        walls, _ = timed_loop(cast(Any, state), self._worker, WARMUP, len(plan) - 1, {})
        state.read()
        timing = timing_of(self._worker.collect(len(walls)), walls, WARMUP)
        told = state.spent[1:]  # the first is of the warm-ups
        spins = [Spin(*each, *spent) for each, spent in zip(zip(timing.span_ns, walls, strict=True), told, strict=True)]
        return list(zip(spins[::2], spins[1::2], strict=True))


@pytest.fixture(scope="module")
def spinner(gemm: Case, toolchain: Toolchain) -> Iterator[Spinner]:
    torch = pytest.importorskip("torch")
    from ptxbench.profiler.arena import Arena, TensorSpec
    from ptxbench.profiler.device import describe_device

    built = toolchain.build(Candidate(source=(HERE / "kernels" / "spin.cu").read_text()), gemm.arch)
    assert built.so_path is not None, built.build.log
    with gpu_lock():
        torch.cuda.init()
        arena = Arena((TensorSpec("asked", (1,), "int64", False), TensorSpec("spent", (2,), "int64", True)))
        worker = Worker(sandbox_command())
        try:
            worker.wait_ready()
            job = {"handle": arena.handle, "tensors": arena.describe(), "scalars": []}
            worker.load({**job, "so_path": str(built.so_path), "symbol": "run"})
            yield Spinner(arena, worker, describe_device().max_sm_clock_mhz)
        finally:
            worker.close()
            arena.close()


def beyond_ns(pairs: list[tuple[Spin, Spin]]) -> list[float]:
    """Of each call, its span less the time that it spun."""
    return [spin.span_ns - spin.clocks * calibrated.timer_ns / calibrated.clocks for spin, calibrated in pairs]


def spun_ns(pairs: list[tuple[Spin, Spin]]) -> float:
    return median(spin.clocks * calibrated.timer_ns / calibrated.clocks for spin, calibrated in pairs)


def test_kernels_of_known_duration_are_read_within_two_percent(spinner: Spinner) -> None:
    start_ns = median(beyond_ns(spinner.run(0)))
    rows: list[dict[str, float]] = []
    for duration_us in DURATIONS_US:
        pairs = spinner.run(duration_us)
        true_ns = spun_ns(pairs)
        error_ns = median(beyond_ns(pairs)) - start_ns
        rows.append(
            {
                "asked_us": duration_us,
                "true_ns": round(true_ns, 1),
                "span_ns": median(spin.span_ns for spin, _ in pairs),
                "wall_ns": median(spin.wall_ns for spin, _ in pairs),
                "error_ns": round(error_ns, 1),
                "error_share": round(error_ns / true_ns, 6),
            }
        )
    figures = {"start_ns": round(start_ns, 1), "spins": rows}
    keep_figures("spin.json", figures)
    expect_figures(figures)


def expect_figures(figures: dict[str, Any]) -> None:
    """What is demanded of a run's figures, here and of stored ones."""
    assert 0 < figures["start_ns"] < START_NS, figures
    rows = figures["spins"]
    assert [row["asked_us"] for row in rows] == list(DURATIONS_US)
    # Whatever the device's clock is, the range is the one that kernels have.
    assert rows[0]["true_ns"] < 20_000
    assert rows[-1]["true_ns"] > 5_000_000
    for row in rows:
        assert abs(row["error_ns"]) <= max(ALLOWED_SHARE * row["true_ns"], ALLOWED_NS), figures
