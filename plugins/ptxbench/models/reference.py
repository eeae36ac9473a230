"""``reference``: the hand-written solutions under ``generated/reference/<arch>/<definition>/kernel.cu``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.errors import InputError
from ptxbench.models.base import End, PastTurn, Proposal, no_further_turn
from ptxbench.models.floors import FLOORS_FILE, load_floors
from ptxbench.records import Candidate

if TYPE_CHECKING:
    from ptxbench.cases import Case

REFERENCE_FOLDER = Path("generated", "reference")
"""Relative to the checkout; tracked, unlike the rest of ``generated``."""


class ReferenceModel:
    """One solution per case and architecture, proposed in the first turn of every trajectory.

    Nothing is read before a turn is asked for, so that collecting needs no solution to exist.
    """

    name = "reference"
    turns: int | None = 1

    def __init__(self, root: Path) -> None:
        self._folder = root / REFERENCE_FOLDER
        self._floors: dict[str, dict[str, float]] = {}
        self._lock = threading.Lock()

    def min_speedup(self, case: Case) -> float | None:
        """The floor in the architecture's ``reference.yaml``; None where it names none.

        Raises InputError for a broken file.
        """
        arch = case.arch.name
        with self._lock:
            if arch not in self._floors:
                path = self._folder / arch / FLOORS_FILE
                self._floors[arch] = dict(load_floors(path, arch).min_speedup) if path.is_file() else {}
        return self._floors[arch].get(case.definition.name)

    def _path(self, case: Case) -> Path:
        return self._folder / case.arch.name / case.definition.name / "kernel.cu"

    def _candidate(self, case: Case) -> Candidate | None:
        path = self._path(case)
        try:
            return Candidate(source=path.read_bytes().decode("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (UnicodeDecodeError, OSError) as error:
            raise InputError(f"{path}: expected a readable UTF-8 source, found: {error}; restore the file") from error

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """The solution's hash."""
        del variant, trajectory, turn
        candidate = self._candidate(case)
        return candidate.sha256 if candidate else None

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The solution in turn 0, where one exists."""
        del variant, trajectory, history
        if turn > 0:
            return no_further_turn(turn)
        candidate = self._candidate(case)
        if candidate is None:
            return End(message=f"there is no reference solution of {case.definition.name} for {case.arch.name}")
        return Proposal(candidate=candidate, origin="reference")
