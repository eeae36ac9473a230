"""Arguments that several command lines take: types for argparse, and options of one meaning."""

from __future__ import annotations

import argparse
from pathlib import Path

_MOST_DIGITS = 12
"""Checked first: Python refuses to convert thousands of digits."""


def count(text: str) -> int:
    """A whole number above 0. Raises argparse.ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or int(text) < 1:
        expected = f"a whole number of at least 1 in at most {_MOST_DIGITS} digits"
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text[:40]!r}")
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


TOKEN_VARIABLE = "PTXBENCH_TOKEN"
"""Environment variable with the bearer token of a service, for it and for its clients."""
NO_TOKEN = "expected a token of one word of printable ASCII"
PROFILERS = ("auto", "local", "replay", "ray")
_ELSEWHERE = ("http://", "https://", "ray://", "ray?")


def is_token(text: str) -> bool:
    """Whether a text can be sent as a bearer token, in a header of HTTP."""
    return text.isascii() and text.isprintable() and " " not in text and text != ""


def profiler(text: str) -> str:
    """What ``--profiler`` takes. Raises argparse.ArgumentTypeError."""
    if text not in PROFILERS and not text.startswith(_ELSEWHERE):
        raise argparse.ArgumentTypeError(
            f"invalid choice: {text[:80]!r} (choose from {', '.join(PROFILERS)}, ray://HOST:PORT, "
            "or the URL of a service)"
        )
    return text


def add_trace_sets(
    command: argparse.ArgumentParser, purpose: str = "the collection that a run is of, if it is of one; repeatable"
) -> None:
    """``--trace-set``, as ``trace_sets``: where the cases of a run are found that no suite has."""
    command.add_argument(
        "--trace-set",
        dest="trace_sets",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help=purpose,
    )
