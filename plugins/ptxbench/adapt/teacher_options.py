"""Options that the commands of both teachers have."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.agent.budget import Limits


def add_teacher_options(command: argparse.ArgumentParser) -> None:
    """Who is asked, and what that may take."""
    command.add_argument(
        "--teacher", required=True, metavar="MODEL", help="a language model, named as --model of pytest names one"
    )
    command.add_argument("--models-file", type=Path, metavar="FILE", help="YAML file with models of your own")
    command.add_argument(
        "--budget-usd", type=positive, metavar="USD", help="ask no more when all sessions on the folder have cost this"
    )
    command.add_argument(
        "--budget-tokens", type=count, metavar="N", help="ask no more when they have taken this many tokens"
    )
    command.add_argument(
        "--concurrency", type=count, default=4, metavar="N", help="conversations in progress at once (default: 4)"
    )


def limits_of(options: argparse.Namespace) -> Limits:
    """The budget."""
    from ptxbench.agent.budget import Limits

    return Limits(options.budget_usd, options.budget_tokens)


def count(text: str) -> int:
    """A whole number above 0. Raises argparse.ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text[:40]!r}")
    return int(text)


def positive(text: str) -> float:
    """A finite number above 0. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text[:40]!r}")
    return value
