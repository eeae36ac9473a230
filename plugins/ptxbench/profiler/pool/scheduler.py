"""Which operation goes to which device next: a deterministic core without threads, clocks or devices.

A device does one operation at a time, whatever kind, so nothing ever runs beside a timing. Who comes next: interactive
before bulk, in both what goes on with a candidate before what begins with one (few candidates are half measured at any
time) and the checks that no number waits for last, among clients the one that had least device time, and of one client
the earliest. Every ``OLDEST_EVERY``-th operation is the one that waits longest, so nobody waits for ever. Where it
goes: to the device that is expected to begin measuring it soonest, counting what is before it there and, where its
state is not in memory, building that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from ptxbench.profiler.pool.costs import Costs, Kind
from ptxbench.profiler.pool.residents import Need, Residents
from ptxbench.profiler.ticket import Priority

OLDEST_EVERY = 8
"""Bulk work, and clients that had much, get at least this part of the operations, and cost the others no more."""
NOTHING = Need(0, 0)
_FORESEEN = 1000
"""So many waiting operations are counted into the devices' queues; a longer queue need not be known exactly."""

_CLIENTS = 1000
"""Names of clients that are remembered."""

Device = int
Payer = tuple[Priority, str]
"""Whose account an operation is on: clients share what is left to their priority, and pay for nothing of the other."""

_ORDER: dict[Kind, int] = {"sanitize": 0, "instructions": 0, "evaluate": 1, "check": 2}


@dataclass(frozen=True)
class Task:
    """One operation that waits or runs."""

    number: int
    """Unique, in the order in which they came."""
    kind: Kind
    state: str
    """Key of the workload state that it works on."""
    need: Need = NOTHING
    client: str = ""
    priority: Priority = "interactive"
    avoid: frozenset[Device] = frozenset()
    """Devices that it was disturbed on: taken only where no other device can."""

    @property
    def rank(self) -> int:
        """Lower ranks come first."""
        return (0 if self.priority == "interactive" else len(_ORDER)) + _ORDER[self.kind]

    @property
    def payer(self) -> Payer:
        """Whose device time it takes."""
        return self.priority, self.client


class Placed(NamedTuple):
    """A task begins on a device."""

    task: Task
    device: Device


class Running(NamedTuple):
    """A task on a device."""

    task: Task
    since: float
    expected_s: float
    built: bool
    """Whether it has to build its state, as far as is known."""


class Scheduler:
    """Tasks, devices and what is known of both. Times are seconds of any clock that does not go back."""

    def __init__(self, costs: Costs | None = None) -> None:
        self.costs = costs or Costs()
        self._memory: dict[Device, Residents] = {}
        self._open: set[Device] = set()
        self._running: dict[Device, Running] = {}
        self._waiting: dict[tuple[int, str], list[Task]] = {}
        """By rank and client, in the order of their numbers; no list is empty."""
        self._served: dict[Payer, float] = {}
        """Device time, seconds, where whoever comes anew begins at ``_reached``."""
        self._reached: dict[Priority, float] = {"interactive": 0.0, "bulk": 0.0}
        """The most that a client had when one of its tasks began: the virtual time of fair queueing."""
        self._since_oldest = 0
        self._numbers: set[int] = set()

    # Devices.

    def open(self, device: Device, memory_bytes: int) -> None:
        """A device takes tasks, from now on or again."""
        self._memory.setdefault(device, Residents(memory_bytes))
        self._open.add(device)

    def shut(self, device: Device) -> None:
        """A device takes no more tasks for now. What it holds is as reported."""
        self._open.discard(device)

    def reported(self, device: Device, states: Mapping[str, int]) -> None:
        """What a device says that it holds: bytes by state."""
        if device in self._memory:
            self._memory[device].reported(states)

    def resident(self, device: Device) -> tuple[str, ...]:
        """Keys of the states on a device."""
        return self._memory[device].names if device in self._memory else ()

    def running(self, device: Device) -> Running | None:
        """What a device does."""
        return self._running.get(device)

    @property
    def known(self) -> frozenset[Device]:
        """Devices that were open once."""
        return frozenset(self._memory)

    def admitted_by(self, need: Need) -> tuple[Device, ...]:
        """The known devices that could hold a state of this size."""
        return tuple(device for device, memory in self._memory.items() if memory.admits(need))

    # Tasks.

    def submit(self, task: Task) -> None:
        """A task waits from now on. Raises ValueError for a number that waits or runs."""
        if task.number in self._numbers:
            raise ValueError(f"task {task.number}: expected a number of its own, found one that waits or runs")
        if not self._is_active(task.payer):
            self._forget_clients()
            # Whoever was away has no claim on the time that others used meanwhile.
            self._served[task.payer] = max(self._served.get(task.payer, 0.0), self._reached[task.priority])
        self._numbers.add(task.number)
        self._enqueue(task)

    def withdraw(self, number: int) -> Task | None:
        """Take a waiting task back; None if it runs, ended or never was."""
        found = next((task for task in self.waiting() if task.number == number), None)
        if found is not None:
            self._dequeue(found)
            self._numbers.discard(number)
        return found

    def waiting(self) -> Iterator[Task]:
        """Every waiting task, in no order."""
        for tasks in self._waiting.values():
            yield from tasks

    def place(self, now: float) -> list[Placed]:
        """Begin what can begin now."""
        idle = {device for device in self._open if device not in self._running}
        if not idle:
            return []
        placed: list[Placed] = []
        backlog = self._backlog(now)
        for task in self._in_order():
            device = self._choice(task, backlog)
            if device is None:
                continue
            if device in idle:
                idle.remove(device)
                placed.append(Placed(task, device))
            backlog[device] += self._takes(task, device)
            if not idle:
                break
        for each in placed:
            self._begin(*each, now)
        return placed

    def finished(self, device: Device, now: float, *, built: bool | None = None) -> Task:
        """The device's task ended, well or not. ``built`` corrects what was supposed of its state; None: unknown."""
        running = self._end(device, now)
        was_built = running.built if built is None else built
        self.costs.learn(running.task.kind, running.task.state, now - running.since, built=was_built)
        self._numbers.discard(running.task.number)
        return running.task

    def failed(self, device: Device, now: float) -> Task:
        """The device's task ended with an error: how long it took says nothing."""
        task = self._end(device, now).task
        self._numbers.discard(task.number)
        return task

    def give_back(self, device: Device, now: float, *, avoid: bool = False) -> Task:
        """The device's task has to be done again, elsewhere if ``avoid`` and if that is possible."""
        task = self._end(device, now).task
        if avoid:
            task = replace(task, avoid=task.avoid | {device})
        self._enqueue(task)
        return task

    def queued(self, now: float) -> dict[Device, int]:
        """How many waiting tasks would go to each open device, as things stand."""
        counts = dict.fromkeys(sorted(self._open), 0)
        backlog = self._backlog(now)
        for task in islice(self._in_order(), _FORESEEN):
            device = self._choice(task, backlog)
            if device is not None:
                counts[device] += 1
                backlog[device] += self._takes(task, device)
        return counts

    # Order.

    def _in_order(self) -> Iterator[Task]:
        """Waiting tasks as they should begin; a client that has one in front is behind others by what that takes."""
        first = self._oldest() if self._since_oldest >= OLDEST_EVERY - 1 else None
        if first is not None:
            yield first
        served = dict(self._served)
        for rank in sorted({rank for rank, _ in self._waiting}):
            queues = {client: iter(tasks) for (other, client), tasks in self._waiting.items() if other == rank}
            heads = {client: next(queue) for client, queue in queues.items()}
            while heads:
                client = min(heads, key=lambda name: (served[heads[name].payer], heads[name].number))
                task = heads.pop(client)
                following = next(queues[client], None)
                if following is not None:
                    heads[client] = following
                if task is not first:
                    yield task
                served[task.payer] += self.costs.duration(task.kind, task.state)

    def _oldest(self) -> Task | None:
        """The longest waiting task that an open device could do: another must not hold the turn of the oldest."""
        able = [self._memory[device] for device in self._open]
        found = [
            next((task for task in tasks if any(memory.admits(task.need) for memory in able)), None)
            for tasks in self._waiting.values()
        ]
        return min((task for task in found if task), key=lambda task: task.number, default=None)

    def _heads(self) -> Iterator[Task]:
        """The earliest task of each rank and client."""
        return (tasks[0] for tasks in self._waiting.values())

    # Places.

    def _choice(self, task: Task, backlog: Mapping[Device, float]) -> Device | None:
        """The open device that would begin measuring the task soonest; None if no open one may have it."""
        able = [device for device in backlog if self._memory[device].admits(task.need)]
        preferred = [device for device in able if device not in task.avoid] or able

        def badness(device: Device) -> tuple[float, bool, int, Device]:
            memory = self._memory[device]
            begins = backlog[device] + self._preparing(task, device)
            return begins, task.state not in memory, memory.nbytes, device

        return min(preferred, key=badness, default=None)

    def _preparing(self, task: Task, device: Device) -> float:
        """Time before measuring begins: building the state, and later those that it drives out and others wait for."""
        memory = self._memory[device]
        if task.state in memory:
            return 0.0
        lost = memory.evicted_for(task.state, task.need)
        wanted = {other.state for other in self._heads()} if lost else set()
        return self.costs.build(task.state) + sum(self.costs.build(state) for state in lost if state in wanted)

    def _takes(self, task: Task, device: Device) -> float:
        return self._preparing(task, device) + self.costs.duration(task.kind, task.state)

    def _backlog(self, now: float) -> dict[Device, float]:
        """When each open device will be free, in seconds from now."""
        return {device: self._remaining(device, now) for device in sorted(self._open)}

    def _remaining(self, device: Device, now: float) -> float:
        running = self._running.get(device)
        # What is late by some time is expected to be late by as much again: so nobody waits for what never ends.
        return abs(running.since + running.expected_s - now) if running else 0.0

    # Bookkeeping.

    def _begin(self, task: Task, device: Device, now: float) -> None:
        self._since_oldest = 0 if task is self._oldest() else self._since_oldest + 1
        self._dequeue(task)
        memory = self._memory[device]
        takes, built = self._takes(task, device), task.state not in memory
        memory.use(task.state, task.need)
        self._running[device] = Running(task, now, takes, built)
        self._reached[task.priority] = max(self._reached[task.priority], self._served[task.payer])
        self._served[task.payer] += takes

    def _end(self, device: Device, now: float) -> Running:
        running = self._running.pop(device)
        self._served[running.task.payer] += now - running.since - running.expected_s
        return running

    def _enqueue(self, task: Task) -> None:
        insort(self._waiting.setdefault((task.rank, task.client), []), task, key=lambda each: each.number)

    def _dequeue(self, task: Task) -> None:
        key = (task.rank, task.client)
        self._waiting[key].remove(task)
        if not self._waiting[key]:
            del self._waiting[key]

    def _forget_clients(self) -> None:
        """Keep few names of those who have nothing here."""
        if len(self._served) > _CLIENTS:
            self._served = {payer: spent for payer, spent in self._served.items() if self._is_active(payer)}

    def _is_active(self, payer: Payer) -> bool:
        running = (each.task for each in self._running.values())
        return any(task.payer == payer for task in (*self._heads(), *running))
