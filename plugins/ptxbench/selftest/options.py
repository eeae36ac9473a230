"""What ``ptxbench selftest`` takes. Apart from the command, whose imports the other commands shall not pay for."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptxbench.arguments import count, positive


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "--corpus",
        dest="corpora",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="a folder of attacks or, if it is called honest, of honest kernels; repeatable (default: the checkout's)",
    )
    command.add_argument("-k", dest="pattern", metavar="PATTERN", help="only kernels with this in their name; * and ?")
    command.add_argument("--arch", default="h100", metavar="NAME", help="architecture to build for (default: h100)")
    command.add_argument(
        "--jobs", type=count, metavar="N", help="compilations at a time (default: a quarter of the processors)"
    )
    command.add_argument(
        "--time-limit", type=positive, metavar="SECONDS", help="measure nothing more after this; the rest is unknown"
    )
    command.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="keep what is measured in a file there; started again, only what is missing or has changed is measured",
    )
    command.add_argument(
        "--missing", action="store_true", help="only kernels that the committed evidence under tests/evidence lacks"
    )
    command.add_argument(
        "--memcheck", action="store_true", help="memcheck on all that ran, not only where an expectation asks for it"
    )
    command.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="DEFENCE",
        help="switch a defence off and print which attacks pass now; repeated: together; all: each in turn",
    )
    command.add_argument(
        "--table", action="store_true", help="print the tables of docs/trust.md from committed evidence; needs no GPU"
    )
    command.add_argument("--write", action="store_true", help="with --table: write them into docs/trust.md")
    command.add_argument(
        "--repeat", type=count, metavar="N", help="measure the reference solutions N times and print the spread"
    )
