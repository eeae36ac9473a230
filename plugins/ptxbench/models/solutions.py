"""``solutions``: what a collection itself proposes. Every CUDA solution of a definition is a trajectory of one turn."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.models.base import End, Model, PastTurn, Proposal, no_further_turn
from ptxbench.models.includes import Inlining
from ptxbench.records import Candidate
from ptxbench.trace.solution import Binding, Solution, SourceLanguage

if TYPE_CHECKING:
    from ptxbench.cases import Case

NAME = "solutions"
SYMBOL = "run"
"""The kernel ABI: one export of this name (PROTOCOL 6)."""

Solutions = Callable[[], Mapping[str, Sequence[Solution]]]
"""Reads the solutions of a collection, by definition."""


class _Usable(NamedTuple):
    name: str
    candidate: Candidate


def one_source(solution: Solution) -> str:
    """The solution as one source: its entry file, with its own files put in where it includes them.

    Raises ValueError, which says why, for a solution that cannot be built here.
    """
    spec = solution.spec
    if spec.language is not SourceLanguage.CUDA:
        raise ValueError(f"it is written in {spec.language.value}")
    if spec.binding is Binding.TORCH:
        raise ValueError("it is a torch extension")
    if not spec.destination_passing_style:
        raise ValueError("it returns its outputs instead of writing into them")
    if spec.entry_symbol != SYMBOL:
        raise ValueError(f"it exports {spec.entry_symbol!r}, not {SYMBOL!r}")
    if not spec.entry_file.endswith(".cu"):
        raise ValueError(f"its entry is in {spec.entry_file}, which is no .cu file")
    sources = {posixpath.normpath(source.path): source.content for source in solution.sources}
    inlining = Inlining(sources)
    text = inlining.text(posixpath.normpath(spec.entry_file))
    unused = sorted(path for path in sources.keys() - inlining.used if path.endswith((".cu", ".cpp", ".cc", ".cxx")))
    if unused:
        raise ValueError(f"{unused[0]} is a unit of its own")
    return text


class SolutionsModel:
    """Proposes a collection's solutions. Nothing is read before the number of a definition's solutions is asked for."""

    name = NAME
    turns: int | None = 1

    def __init__(self, solutions: Solutions) -> None:
        self._read = solutions

    @cached_property
    def _solutions(self) -> dict[str, tuple[list[_Usable], list[str]]]:
        """Definition -> what can be built, and why the rest cannot."""
        found: dict[str, tuple[list[_Usable], list[str]]] = {}
        for definition, solutions in self._read().items():
            usable, reasons = found.setdefault(definition, ([], []))
            for solution in solutions:
                try:
                    usable.append(_Usable(solution.name, Candidate(source=one_source(solution))))
                except ValueError as error:
                    reasons.append(f"{solution.name}: {error}")
        return found

    def _of(self, case: Case, trajectory: int) -> _Usable | None:
        usable = self._solutions.get(case.definition.name, ([], []))[0]
        return usable[trajectory] if trajectory < len(usable) else None

    def trajectories(self, case: Case) -> int:
        """How many there are of the case; at least one, in which it says that there is no solution."""
        return max(1, len(self._solutions.get(case.definition.name, ([], []))[0]))

    def min_speedup(self, case: Case) -> float | None:
        """Collections declare no floor."""
        del case
        return None

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """The solution's hash."""
        del variant, turn
        found = self._of(case, trajectory)
        return found.candidate.sha256 if found else None

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The solution of this trajectory."""
        del variant, history
        if turn > 0:
            return no_further_turn(turn)
        found = self._of(case, trajectory)
        if found is not None:
            return Proposal(candidate=found.candidate, origin=f"solution {found.name}")
        reasons = self._solutions.get(case.definition.name, ([], []))[1]
        why = f" ({'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''})" if reasons else ""
        return End(message=f"the collection has no CUDA solution of {case.definition.name} that can be built here{why}")


def trajectories_of(model: Model, case: Case, asked: int) -> int:
    """Trajectories of a model on a case: as many as were asked for, but one for each solution of a collection."""
    return model.trajectories(case) if isinstance(model, SolutionsModel) else asked
