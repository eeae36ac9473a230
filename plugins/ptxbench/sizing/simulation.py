"""The same fleet, event by event, with the times as they are distributed: what the model is checked against."""

from __future__ import annotations

import heapq
import random

from ptxbench.sizing.times import Stage, TurnTimes

WARM_UP = 0.1
"""Share of the turns before counting begins, since all agents begin at once."""


class _Station:
    """First come, first served, by several servers."""

    def __init__(self, servers: int, stage: Stage) -> None:
        self._free = [0.0] * servers
        self._stage = stage
        self.waited_s = 0.0

    def leave(self, now: float, chance: random.Random) -> float:
        """When somebody who comes now leaves. Calls are in order of time."""
        begin = max(now, heapq.heappop(self._free))
        end = begin + self._stage.draw(chance)
        heapq.heappush(self._free, end)
        self.waited_s += begin - now
        return end


class Simulated(float):
    """Turns a second, and beside it the wait."""

    gpu_wait_s: float


def simulate(times: TurnTimes, agents: int, processors: int, gpus: int, *, turns: int, seed: int = 0) -> Simulated:
    """Throughput over ``turns`` turns of the whole fleet, in turns a second. The same for the same ``seed``."""
    chance = random.Random(seed)
    # More servers than agents are never busy.
    stations = (_Station(min(processors, agents), times.build), _Station(min(gpus, agents), times.gpu))
    events = [(times.model.draw(chance), agent, 0) for agent in range(agents)]
    heapq.heapify(events)
    first, done, began_s, now = int(turns * WARM_UP), 0, 0.0, 0.0
    while done < turns:
        now, agent, stage = heapq.heappop(events)
        if stage < len(stations):
            heapq.heappush(events, (stations[stage].leave(now, chance), agent, stage + 1))
            continue
        done += 1
        if done == first:
            began_s = now
            for station in stations:
                station.waited_s = 0.0
        heapq.heappush(events, (now + times.model.draw(chance), agent, 0))
    found = Simulated((turns - first) / (now - began_s))
    found.gpu_wait_s = stations[-1].waited_s / (turns - first)
    return found
