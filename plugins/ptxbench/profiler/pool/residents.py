"""What is in a device's memory, in bytes, and whether something else fits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from ptxbench.profiler.footprint import PROCESSES_BYTES, STATE_SHARE

CANDIDATE_BYTES = 2 << 30
"""Device memory that every candidate can count on for itself, beside its staged tensors. Ours: the reference solutions
take at most 0.4 GiB (the backward kernels' fp32 dQ)."""


class Need(NamedTuple):
    """Device memory of one workload state, bytes."""

    held: int
    """As long as the state is resident: staging and references."""
    building: int
    """Beside it while it is built."""

    @property
    def alone(self) -> int:
        """With the processes and the candidate: what a device must have at the least."""
        return self.held + self.building + PROCESSES_BYTES + CANDIDATE_BYTES


class Residents:
    """The states on one device, least recently used first: what the oracle's ``StateCache`` does, foreseen.

    The oracle decides; ``reported`` puts right where the foresight was wrong.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory = memory_bytes
        self._states: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, state: str) -> bool:
        return state in self._states

    @property
    def names(self) -> tuple[str, ...]:
        """Keys of the states."""
        return tuple(self._states)

    @property
    def nbytes(self) -> int:
        """Bytes that they hold."""
        return sum(self._states.values())

    def admits(self, need: Need) -> bool:
        """Whether the device could take a state at all, with nothing else on it."""
        return need.alone <= self._memory

    def evicted_for(self, state: str, need: Need) -> tuple[str, ...]:
        """Which states would have to go."""
        if state in self._states:
            return ()
        limit = min(int(self._memory * STATE_SHARE), self._memory - need.alone + need.held)
        over = self.nbytes + need.held - limit
        gone: list[str] = []
        for other, nbytes in self._states.items():
            if over <= 0:
                break
            gone.append(other)
            over -= nbytes
        return tuple(gone)

    def use(self, state: str, need: Need) -> None:
        """An operation on a state begins."""
        for other in self.evicted_for(state, need):
            del self._states[other]
        self._states[state] = need.held
        self._states.move_to_end(state)

    def reported(self, states: Mapping[str, int]) -> None:
        """What the oracle says that it holds, least recently used first."""
        self._states = OrderedDict(states)
