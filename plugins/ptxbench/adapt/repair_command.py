"""``ptxbench fixit repair``: from failures to repairs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.defaults import REPAIR_TURNS
from ptxbench.adapt.teacher_options import add_teacher_options, limits_of
from ptxbench.arguments import add_trace_sets, count, positive, profiler


class Result(NamedTuple):
    """What to print, and the exit status: 1 where going on later may bring more."""

    lines: tuple[str, ...]
    status: int


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("failures", type=Path, metavar="FAILURES", help="a failures.jsonl (`ptxbench fixit collect`)")
    command.add_argument(
        "--run", required=True, metavar="NAME|PATH", help="run folder of the repairs; an existing one is resumed"
    )
    command.add_argument("--into", type=Path, metavar="FILE", help="the repairs (default: repairs.jsonl in there)")
    command.add_argument(
        "--turns", type=count, default=REPAIR_TURNS, metavar="N", help=f"answers for each (default: {REPAIR_TURNS})"
    )
    command.add_argument(
        "--require-target", action="store_true", help="keep only repairs that execute a target instruction"
    )
    command.add_argument(
        "--require-safe", action="store_true", help="keep only repairs in which compute-sanitizer ran and found nothing"
    )
    command.add_argument(
        "--min-speedup", type=positive, metavar="P", help="keep only repairs at least P times as fast as the baseline"
    )
    command.add_argument(
        "--profiler", type=profiler, default="auto", metavar="NAME|URL", help="as of pytest (default: auto)"
    )
    add_trace_sets(command)
    add_teacher_options(command)


def run(options: argparse.Namespace, root: Path) -> Result:
    """Repair. ``root`` is the checkout. Raises InputError, InfrastructureError."""
    from ptxbench.adapt.model import REPAIRS, Failure, read_lines, write_lines
    from ptxbench.adapt.repair import GOES_ON, Task
    from ptxbench.adapt.repair_session import Workshop, repair
    from ptxbench.adapt.teacher import find_teacher
    from ptxbench.agent import resolve_run
    from ptxbench.agent.goal import Goal

    failures = read_lines(Failure, options.failures)
    limits = limits_of(options)
    goal = Goal(options.min_speedup, "required" if options.require_target else "ignored", options.require_safe)
    workshop = Workshop(
        root=root,
        folder=resolve_run(root, options.run),
        profiler=options.profiler,
        concurrency=options.concurrency,
        limits=limits,
        trace_sets=tuple(options.trace_sets),
        say=_say,
    )
    entry = find_teacher(options.teacher, options.models_file, limits)
    outcome = repair(failures, entry, Task(goal, options.turns), workshop)
    into = options.into or workshop.folder / REPAIRS
    write_lines(outcome.found.repairs, into)
    counts = outcome.found.counts
    lines = [f"{len(failures)} failures, repaired by {entry.name}:", *_counted(counts), *_faults(outcome.faults)]
    lines += [f"Spent in this session: USD {outcome.usd:.4f}, {outcome.tokens:,} tokens"]
    lines += [f"{into}: {len(outcome.found.repairs)} repairs"]
    if counts["not measured"]:
        lines.append("Run the same command on a machine with the case's GPU to go on with those that are not measured.")
    if counts["not finished"]:
        lines.append("Run the same command again to go on with those that are not finished.")
    return Result(tuple(lines), 1 if any(counts[row] for row in GOES_ON) else 0)


def _say(line: str) -> None:
    """A device may take minutes for each answer, so that each is told as it comes; results alone go to stdout."""
    with suppress(OSError, ValueError):  # whoever read them may have gone, which is no reason to stop
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _counted(counts: dict[str, int]) -> Iterator[str]:
    for reason, number in counts.items():
        if number or reason == "repaired":
            yield f"  {reason}: {number}"


def _faults(faults: dict[str, int]) -> Iterator[str]:
    for kind, number in sorted(faults.items()):
        yield f"  turns that the fault {kind} kept from happening: {number}"
