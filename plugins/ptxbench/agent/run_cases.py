"""The cases that a run's turns are of: from the suites that it names, and from collections that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.errors import InputError
from ptxbench.records import TurnKey, TurnRecord

if TYPE_CHECKING:
    from ptxbench.cases import Case, Suite

SEPARATOR = "/"
"""Between the suite of a collection and a definition of it, in the names under which a run keeps its content."""


def definition_suite(case: Case) -> str:
    """Under which name a run keeps what a definition of a collection is.

    One name for each: whoever runs other definitions of the collection later continues the same run.
    """
    return f"{case.suite}{SEPARATOR}{case.definition.name}"


class RunCases:
    """Cases by name, in the checkout ``root`` and in collections."""

    def __init__(self, root: Path, trace_sets: Sequence[Path] = ()) -> None:
        self._root = root
        self._trace_sets = tuple(trace_sets)
        self._load = cache(self._suite)

    def _suite(self, name: str) -> Suite:
        from ptxbench.cases import load_suite

        return load_suite(self._root, name)

    @cached_property
    def _collections(self) -> Suite:
        from ptxbench.cases.trace_sets import load_collections

        return load_collections(self._root, self._trace_sets).suite

    def _table(self, name: str) -> tuple[Case, ...]:
        from ptxbench.cases.trace_sets import SUITE_PREFIX

        suite = name.partition(SEPARATOR)[0]
        if not suite.startswith(f"{SUITE_PREFIX}-"):
            return self._load(suite).table
        if not self._trace_sets:
            raise InputError(
                f"the run is of the collection {suite}: expected its folder, found none given; add --trace-set PATH"
            )
        return self._collections.table

    def find(self, suites: Sequence[str], record: TurnRecord) -> Case:
        """The case of a record, of a run that names ``suites``. Raises as ``of`` does."""
        return self.of(suites, record.key)

    def of(self, suites: Sequence[str], key: TurnKey) -> Case:
        """The case of a turn, of a run that names ``suites``.

        Raises InputError for one that is in none of them, and where a collection is needed that was not named.
        """
        for name in suites:
            for case in self._table(name):
                if (case.name, case.arch.name) == (key.case, key.arch):
                    return case
        raise InputError(
            f"turn {key}: expected the case {key.case} on {key.arch} in the suites "
            f"{', '.join(suites) or '(none)'} of this checkout, found none; judge it in the checkout it came from"
        )
