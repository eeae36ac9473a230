"""A teacher: a language model that is asked outside of a benchmark run, within a budget."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ptxbench.agent.budget import Budget, Limits, Spent
from ptxbench.agent.meter import Meter
from ptxbench.agent.session_lock import hold_session
from ptxbench.errors import InputError
from ptxbench.models.catalog import load_catalog
from ptxbench.models.client import ModelClient
from ptxbench.models.entry import ModelEntry
from ptxbench.models.registry import open_client
from ptxbench.models.spec import FixedSource, parse_spec

BUDGET_NAMES = ("--budget-usd", "--budget-tokens")


class Teacher(NamedTuple):
    """Who is asked, and what that may take."""

    entry: ModelEntry
    client: ModelClient
    budget: Budget
    meter: Meter
    stop: threading.Event
    """Set to give up what waits."""

    @property
    def name(self) -> str:
        """Of the model."""
        return self.entry.name


def find_teacher(spec: str, models_file: Path | None, limits: Limits) -> ModelEntry:
    """The language model that ``--teacher`` names, as ``--model`` of pytest would.

    Raises InputError for an unknown one, for sources that exist already, and for a budget in dollars without prices.
    """
    found = parse_spec(spec, load_catalog(models_file))
    if isinstance(found, FixedSource):
        raise InputError(f"--teacher {spec}: expected a language model, found sources that exist already; name another")
    if limits.usd is not None and found.prices is None:
        raise InputError(
            f"--budget-usd: expected prices of the teacher, found none of {found.name}; add `prices` to its entry in a "
            "models file (--models-file), or use --budget-tokens"
        )
    return found


@contextmanager
def engaged(entry: ModelEntry, folder: Path, limits: Limits, spent: Spent) -> Iterator[Teacher]:
    """The teacher, with what is left of the budget after what earlier sessions on ``folder`` spent.

    Raises InputError where something that every call needs is missing.
    """
    client = open_client(entry, run_folder=folder)
    try:
        yield Teacher(entry, client, Budget(limits.less(spent), BUDGET_NAMES), Meter(), threading.Event())
    finally:
        client.close()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other sessions off a teacher's folder: both would spend one budget, and number failures differently.

    Raises InputError where one is at work there.
    """
    descriptor = hold_session(folder, alone=True)
    try:
        yield
    finally:
        os.close(descriptor)


def total(amounts: Iterable[Spent]) -> Spent:
    """All of it."""
    found = Spent()
    for amount in amounts:
        found = found.plus(amount)
    return found
