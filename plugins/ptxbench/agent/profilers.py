"""Which profiler answers for which case: a GPU measures the architecture it is, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ptxbench.agent.plan import Skipped
from ptxbench.profiler import Profiler

if TYPE_CHECKING:
    from ptxbench.cases import Case


@runtime_checkable
class TellsNotes(Protocol):
    """A profiler with something to say beside its answers."""

    def take_notes(self) -> list[str]:
        """What was not told yet, for people."""


@runtime_checkable
class ChoosesDevices(Protocol):
    """A profiler with devices of several kinds, which finds the one that a case needs."""

    def refusal(self, case: Case) -> str | None:
        """Why none of its devices measures ``case``; None where one does."""


class Profilers:
    """Opens profilers when they are first needed and routes cases to them.

    ``choice`` is what ``--profiler`` says; ``opener`` opens one by such a name. With ``auto``, a case whose
    architecture is not the device's is answered from stored evidence; with ``local`` it is skipped.
    """

    def __init__(self, choice: str, opener: Callable[[str], Profiler]) -> None:
        self._choice = choice
        self._opener = opener
        self._opened: dict[str, Profiler] = {}
        self._lock = threading.Lock()

    def for_case(self, case: Case) -> Profiler | Skipped:
        """The profiler that answers for ``case``, or why none does.

        Raises InfrastructureError if a device was asked for and there is none.
        """
        profiler = self._open(self._choice)
        if isinstance(profiler, ChoosesDevices):
            refusal = profiler.refusal(case)
            return profiler if refusal is None else Skipped(refusal, "unmeasured")
        if profiler.origin == "replayed":
            return profiler
        device = profiler.health().device
        if device is None or device.compute_capability == case.arch.compute_capability:
            return profiler
        if self._choice == "auto":
            return self._open("replay")
        found = ".".join(str(part) for part in device.compute_capability)
        wanted = ".".join(str(part) for part in case.arch.compute_capability)
        return Skipped(
            f"wrong GPU for {case.arch.name}: expected compute capability {wanted}, found {device.name} with {found}; "
            "select its architecture with -m, or use --profiler replay",
            "unmeasured",
        )

    def measures(self, case: Case) -> bool:
        """Whether evidence for ``case`` would be taken now, not read back."""
        profiler = self.for_case(case)
        return not isinstance(profiler, Skipped) and profiler.origin == "measured"

    def take_notes(self) -> list[str]:
        """What happened to devices, and was not told yet."""
        with self._lock:
            opened = list(self._opened.values())
        return [note for profiler in opened if isinstance(profiler, TellsNotes) for note in profiler.take_notes()]

    def close(self) -> None:
        """End whatever was opened. Idempotent."""
        with self._lock:
            opened, self._opened = list(self._opened.values()), {}
        for profiler in opened:
            profiler.close()

    def _open(self, name: str) -> Profiler:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._opener(name)
            return self._opened[name]
