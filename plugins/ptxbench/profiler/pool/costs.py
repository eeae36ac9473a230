"""How long operations and the building of workload states take, learned from those that were done."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Literal

Kind = Literal["evaluate", "instructions", "sanitize", "check"]
"""``check`` is a sanitizer that no number waits for, so that it gives way (``Profiler.sanitize``)."""

REMEMBERED = 9
"""The median of so many forgets within a few operations and is not moved by one that hung."""
EXPECTED_S: dict[Kind, float] = {"evaluate": 1.0, "instructions": 3.5, "sanitize": 1.6, "check": 1.6}
"""Before anything was measured: medians over the primary workloads on one H200 (docs/performance.md, b and c); of
checks, which were not timed, what memcheck takes."""
EXPECTED_BUILD_S = 3.5
"""The same of what an evaluation takes longer that builds its state: 0.5 s for GEMM, 3.7 s for attention."""


class Costs:
    """Medians of what was measured, by state and kind; of other states where a state is new. Seconds."""

    def __init__(self) -> None:
        self._durations: dict[tuple[Kind, str], deque[float]] = {}
        self._builds: dict[str, deque[float]] = {}
        self._first: dict[tuple[Kind, str], float] = {}
        """Operations that built their state before one that did not told the two parts apart."""

    def duration(self, kind: Kind, state: str) -> float:
        """What an operation takes where its state is resident."""
        if found := self._durations.get((kind, state)):
            return statistics.median(found)
        others = [statistics.median(times) for (other, _), times in self._durations.items() if other == kind]
        return statistics.median(others) if others else EXPECTED_S[kind]

    def build(self, state: str) -> float:
        """What it takes to have a state, on a device that does not."""
        if found := self._builds.get(state):
            return statistics.median(found)
        others = [statistics.median(times) for times in self._builds.values()]
        return statistics.median(others) if others else EXPECTED_BUILD_S

    def learn(self, kind: Kind, state: str, seconds: float, *, built: bool) -> None:
        """An operation ended."""
        key = (kind, state)
        if built:
            if key in self._durations:
                self._learn_build(state, seconds - self.duration(kind, state))
            else:
                self._first[key] = seconds
            return
        self._durations.setdefault(key, deque(maxlen=REMEMBERED)).append(seconds)
        if key in self._first:
            self._learn_build(state, self._first.pop(key) - seconds)

    def _learn_build(self, state: str, seconds: float) -> None:
        self._builds.setdefault(state, deque(maxlen=REMEMBERED)).append(max(0.0, seconds))
