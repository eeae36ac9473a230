"""Options that the commands of both teachers have."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.arguments import count, positive

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
