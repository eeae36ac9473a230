"""The cases that a run's turns are of: from the suites that it names, and from collections that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
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


def _of_collection(suite: str) -> bool:
    from ptxbench.cases.trace_sets import SUITE_PREFIX

    return suite.startswith(f"{SUITE_PREFIX}-")


class RunCases:
    """Cases by name, in the checkout ``root`` and in collections."""

    def __init__(self, root: Path, trace_sets: Sequence[Path] = ()) -> None:
        self._root = root
        self._trace_sets = tuple(trace_sets)
        self._load = cache(self._suite)
        self._bind = cache(self._collections)

    def _suite(self, name: str) -> Suite:
        from ptxbench.cases import load_suite

        return load_suite(self._root, name)

    def _collections(self, definitions: frozenset[str] | None) -> Suite:
        from ptxbench.cases.trace_sets import load_collections

        return load_collections(self._root, self._trace_sets, definitions=definitions).suite

    def _table(self, name: str, suites: Sequence[str]) -> tuple[Case, ...]:
        suite = name.partition(SEPARATOR)[0]
        if not _of_collection(suite):
            return self._load(suite).table
        if not self._trace_sets:
            raise InputError(
                f"the run is of the collection {suite}: expected its folder, found none given; add --trace-set PATH"
            )
        parts = [other.partition(SEPARATOR) for other in suites if _of_collection(other)]
        # Of the definitions that the run is of: its captured inputs of others may never have been fetched.
        whole = any(not definition for _, _, definition in parts)
        return self._bind(None if whole else frozenset(definition for _, _, definition in parts)).table

    def find(self, suites: Sequence[str], record: TurnRecord) -> Case:
        """The case of a record, of a run that names ``suites``. Raises as ``of`` does.

        In another copy of a collection, as an export of some of its workloads, a case may have another name.
        """
        wanted = (record.definition, record.workload_uuid, record.key.arch)
        for name in filter(_of_collection, suites if self._trace_sets else ()):
            for case in self._table(name, suites):
                if (case.definition.name, case.workload.uuid, case.arch.name) == wanted:
                    return case
        return self.of(suites, record.key)

    def of(self, suites: Sequence[str], key: TurnKey) -> Case:
        """The case of a turn, of a run that names ``suites``.

        Raises InputError for one that is in none of them, and where a collection is needed that was not named.
        """
        for name in suites:
            for case in self._table(name, suites):
                if (case.name, case.arch.name) == (key.case, key.arch):
                    return case
        raise InputError(
            f"turn {key}: expected the case {key.case} on {key.arch} in the suites "
            f"{', '.join(suites) or '(none)'} of this checkout, found none; judge it in the checkout it came from"
        )
