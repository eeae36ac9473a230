"""What ``--profiler ray...`` says."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast
from urllib.parse import parse_qsl

from ptxbench.errors import InputError

Behind = Literal["local", "replay"]
FORM = "ray[://HOST:PORT][?profiler=local|replay&pace=SECONDS]"


class Address(NamedTuple):
    """A cluster, and what its actors measure with."""

    url: str | None = None
    """Of a cluster's client server, as Ray writes it; None: the cluster that this machine is part of."""
    behind: Behind = "local"
    pace_s: float = 0.0
    """How long an actor takes over an answer at least: for a rehearsal with stored evidence, in seconds."""


def parse(text: str) -> Address:
    """Read the option. Raises InputError."""
    place, _, query = text.partition("?")
    scheme, slashes, host = place.partition("://")
    if scheme != "ray":
        raise InputError(f"--profiler: expected {FORM}, found {text[:80]!r}")
    said = dict(parse_qsl(query, keep_blank_values=True))
    behind, pace = said.pop("profiler", "local"), said.pop("pace", "0")
    if said or behind not in ("local", "replay") or (slashes and not is_place(host)):
        raise InputError(f"--profiler: expected {FORM}, found {text[:80]!r}")
    return Address(place if slashes else None, cast("Behind", behind), _seconds(pace, behind))


def is_place(text: str) -> bool:
    """Whether it is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16


def _seconds(text: str, behind: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= 3600.0:
        raise InputError(f"--profiler ray?pace=: expected seconds from 0 to 3600, found {text[:20]!r}")
    if seconds and behind != "replay":
        raise InputError("--profiler ray?pace=: expected profiler=replay beside it; what measures takes its own time")
    return seconds
