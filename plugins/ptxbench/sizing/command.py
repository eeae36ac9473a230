"""``ptxbench size``: what a fleet of agents needs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from ptxbench.arguments import count, positive
from ptxbench.errors import InputError
from ptxbench.sizing.fleet import Size, expect_sizable, size, slowdown
from ptxbench.sizing.network import load
from ptxbench.sizing.simulation import simulate
from ptxbench.sizing.times import TurnTimes, measured, of_turns

DEFAULT_SLOWDOWN_PERCENT = 10.0
DEFAULT_PROCESSORS = 16
"""More than one GPU's conversations keep busy, so that a table of GPUs tells of GPUs."""
COLUMNS = (
    "agents",
    "GPUs",
    "processors",
    "turns a minute",
    "simulated",
    "wait for a GPU, s",
    "GPUs busy",
    "turns longer by",
)
TURNS_PER_AGENT, LEAST_TURNS = 60, 20_000
"""Of the simulation: so that chance moves its result by about a hundredth."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--agents", type=count, nargs="+", required=True, metavar="N", help="conversations at once")
    parser.add_argument(
        "--gpus", type=count, metavar="G", help="tell what so many GPUs do (default: the fewest that suffice)"
    )
    parser.add_argument(
        "--processors",
        type=count,
        metavar="P",
        help=f"processors that build, with --gpus (default: {DEFAULT_PROCESSORS})",
    )
    parser.add_argument(
        "--slowdown",
        type=positive,
        default=DEFAULT_SLOWDOWN_PERCENT,
        metavar="PERCENT",
        help=f"by how much waiting for processors and GPUs may lengthen a turn (default: {DEFAULT_SLOWDOWN_PERCENT:g})",
    )
    parser.add_argument(
        "--run", metavar="RUN", help="a run (name or path) whose stage times count (default: docs/performance.md)"
    )
    parser.add_argument(
        "--model-seconds", type=positive, metavar="S", help="mean time in which a model answers, instead"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the simulation (default: 0)")


def lines(options: argparse.Namespace, root: Path) -> Iterator[str]:
    """The stage times, and a table. Raises InputError."""
    if options.processors is not None and options.gpus is None:
        raise InputError("--processors: expected --gpus beside it; without, the fewest processors are looked for")
    times = _times(options, root)
    yield (
        f"A turn: model {times.model.mean_s:.2f} s, build {times.build.mean_s:.2f} s of a processor, "
        f"{times.gpu.mean_s:.2f} s of a GPU ({times.source})"
    )
    yield ""
    yield from table(_sizes(options, times), times, options.seed)


def table(sizes: Iterable[Size], times: TurnTimes, seed: int = 0) -> Iterator[str]:
    """Markdown: each fleet with what it needs, by the model and by the simulation."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---|---|---|---|---|---|---|---|"
    for found in sizes:
        turns = max(LEAST_TURNS, TURNS_PER_AGENT * found.agents)
        seen = simulate(times, found.agents, found.processors, found.gpus, turns=turns, seed=seed)
        yield (
            f"| {found.agents} | {found.gpus} | {found.processors} | {60 * found.load.turns_per_s:.1f} "
            f"| {60 * seen:.1f} | {found.load.gpu_wait_s:.2f} | {found.load.gpu_busy:.0%} "
            f"| {slowdown(times, found.load):.1%} |"
        )


def _sizes(options: argparse.Namespace, times: TurnTimes) -> Iterator[Size]:
    for agents in options.agents:
        wanted = size(times, agents, options.slowdown / 100) if options.gpus is None else None
        if wanted is None:
            expect_sizable(agents)
            processors = options.processors or DEFAULT_PROCESSORS
            wanted = Size(agents, processors, options.gpus, load(times, agents, processors, options.gpus))
        yield wanted


def _times(options: argparse.Namespace, root: Path) -> TurnTimes:
    if options.run is None:
        return measured(options.model_seconds)
    from ptxbench.agent import RunStore, resolve_run

    store = RunStore.read(resolve_run(root, options.run))
    return of_turns([stored.record for stored in store.turns()], f"run {store.name}", options.model_seconds)
