"""``ptxbench fixit explain``: from repairs to rationales."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ptxbench.adapt.defaults import ATTEMPTS, LEAST_TOKENS, MOST_TOKENS, RECORD_TOKENS
from ptxbench.adapt.repair_command import Result
from ptxbench.adapt.teacher_options import add_teacher_options, limits_of
from ptxbench.arguments import count
from ptxbench.errors import InputError


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "repairs", type=Path, metavar="FILE", help="a repairs.jsonl, or a corrects.jsonl for KernelGen"
    )
    command.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="folder of rationales.jsonl and of what was asked"
    )
    command.add_argument(
        "--least-tokens", type=count, default=LEAST_TOKENS, metavar="N", help=f"default: {LEAST_TOKENS}"
    )
    command.add_argument("--most-tokens", type=count, default=MOST_TOKENS, metavar="N", help=f"default: {MOST_TOKENS}")
    command.add_argument(
        "--record-tokens",
        type=count,
        default=RECORD_TOKENS,
        metavar="N",
        help=f"of a whole training record; a rationale gets what its kernels leave (default: {RECORD_TOKENS})",
    )
    command.add_argument(
        "--attempts", type=count, default=ATTEMPTS, metavar="N", help=f"answers for each (default: {ATTEMPTS})"
    )
    add_teacher_options(command)


def run(options: argparse.Namespace, root: Path) -> Result:
    """Have rationales written. Raises InputError, InfrastructureError."""
    from ptxbench.adapt.model import RATIONALES, write_lines
    from ptxbench.adapt.rationale import subject_of
    from ptxbench.adapt.rationale_rules import Window
    from ptxbench.adapt.rationale_session import Desk, rationales_of, read_kernels, write_rationales
    from ptxbench.adapt.teacher import find_teacher

    del root
    if options.least_tokens > options.most_tokens:
        raise InputError(
            f"--least-tokens {options.least_tokens}: expected at most --most-tokens, found {options.most_tokens}"
        )
    repairs, limits = read_kernels(options.repairs), limits_of(options)
    entry = find_teacher(options.teacher, options.models_file, limits)
    desk = Desk(
        folder=options.into,
        window=Window(options.least_tokens, options.most_tokens),
        attempts=options.attempts,
        record_tokens=options.record_tokens,
        concurrency=options.concurrency,
        limits=limits,
    )
    session = write_rationales([subject_of(repair) for repair in repairs], entry, desk)
    rationales = rationales_of(repairs, session, entry.name)
    into = options.into / RATIONALES
    write_lines(rationales, into)
    lines = [f"{len(repairs)} kernels, explained by {entry.name}:", f"  written: {len(rationales)}"]
    lines += _counted("dropped", Counter(refused.reason for refused in session.refused.values()))
    lines += _counted("not finished", Counter(session.left.values()))
    lines += [f"Spent in this session: USD {session.usd:.4f}, {session.tokens:,} tokens"]
    lines += [f"{into}: {len(rationales)} rationales"]
    if session.left:
        lines.append("Run the same command again to go on with those that are not finished.")
    return Result(tuple(lines), 1 if session.left else 0)


def _counted(what: str, counts: Counter[str]) -> list[str]:
    return [f"  {what}, {reason}: {number}" for reason, number in sorted(counts.items())]
