"""What one check of the machine says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from ptxbench.records import Record


class Status(StrEnum):
    """``gap``: something is missing. ``unknown``: it could not be told."""

    OK = "ok"
    GAP = "gap"
    UNKNOWN = "unknown"


class Check(Record):
    """One capability: what was found, and for a gap what it costs and how to close it."""

    name: str
    status: Status
    found: str
    cost: str = ""
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """A capability that is there."""
    return Check(name=name, status=Status.OK, found=found)


def gap(name: str, found: str, cost: str, remedy: str) -> Check:
    """A capability that is missing."""
    return Check(name=name, status=Status.GAP, found=found, cost=cost, remedy=remedy)


def unknown(name: str, found: str, cost: str, remedy: str) -> Check:
    """A capability that could not be told from here."""
    return Check(name=name, status=Status.UNKNOWN, found=found, cost=cost, remedy=remedy)


PROBE_TIMEOUT_S = 30.0


def answer_of(command: Sequence[str]) -> str | None:
    """What a tool prints on standard output; None if it is absent, fails or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def installed(*distributions: str) -> str | None:
    """``NAME VERSION`` of the first of these packages that is installed. Imports none of them."""
    for name in distributions:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None
