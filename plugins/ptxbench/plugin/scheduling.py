"""pytest-xdist: a trajectory stays on one worker, a worker has its own GPU, and a crash loses one turn at most.

Every worker has a *share* of the session, a number from 0 to workers - 1 that it learns through its environment.
Which trajectories a share holds follows from the collected ids alone, so the controller and all workers agree
without talking: the worker can overlap its trajectories from the start, and the replacement of a crashed worker,
which inherits its environment, finishes the same share. Released schedulers instead run a crashed test again and
again, or wait for ever after a crash (pytest-xdist issues 1189, 1323, 1327, 1362, 1378).
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.plugin.items import ITEM

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SHARE_VARIABLE = "PTXBENCH_XDIST_SHARE"
AUTO_VARIABLE = "PYTEST_XDIST_AUTO_NUM_WORKERS"
"""xdist's own: whoever sets it has decided."""
IN_FLIGHT = 3
"""Items that a worker holds: it runs one once it knows the next; a third keeps it from waiting for us."""

MAX_RERUNS = 1
"""A worker that dies takes its item along, which is nobody's fault; the second time it is reported as an error."""

_TURN_ID = re.compile(r"\[(?P<trajectory>[^\[\]]+-v\d+-t\d+)-turn\d+\]$")


def turn_id(nodeid: str) -> str | None:
    """The id of the turn that an item is about, if it is about one."""
    match = _TURN_ID.search(nodeid)
    return match[0][1:-1] if match else None


def scope_of(nodeid: str) -> str:
    """What must not be split over workers: the trajectory of a turn, else the test itself."""
    match = _TURN_ID.search(nodeid)
    return match["trajectory"] if match else nodeid


def split(nodeids: Sequence[str], shares: int) -> list[list[int]]:
    """Indices of ``nodeids`` by share. Whole scopes, in blocks: neighbours share a workload, whose state is costly."""
    scopes = {scope: number for number, scope in enumerate(dict.fromkeys(map(scope_of, nodeids)))}
    result: list[list[int]] = [[] for _ in range(shares)]
    for index, nodeid in enumerate(nodeids):
        result[scopes[scope_of(nodeid)] * shares // len(scopes)].append(index)
    return result


def own_share(nodeids: Sequence[str], environ: Mapping[str, str], workers: int) -> list[int]:
    """Indices of the items that this process will run: all of them outside a worker."""
    share = environ.get(SHARE_VARIABLE)
    return list(range(len(nodeids))) if share is None else split(nodeids, workers)[int(share)]


def auto_workers(profiler: str, asked: object, environ: Mapping[str, str] = os.environ) -> int | None:
    """How many workers ``-n auto`` means: one for each GPU where one is measured on. None: as many as xdist says."""
    if asked != "auto" or environ.get(AUTO_VARIABLE) or profiler not in ("auto", "local"):
        return None
    return len(callers_devices(environ)) or None


def callers_devices(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs that workers share out among them."""
    from ptxbench.profiler.visible import visible_devices

    return visible_devices(environ)


def assign(specs: Sequence[Any], devices: Sequence[str]) -> None:
    """Give each worker, through its gateway's environment, its share and, round robin, one of ``devices``.

    A replacement is started from the same specification, so it has the same of both.
    """
    for share, spec in enumerate(specs):
        spec.env[SHARE_VARIABLE] = str(share)
        if devices:
            spec.env["CUDA_VISIBLE_DEVICES"] = devices[share % len(devices)]


class TrajectoryScheduling:
    """An xdist scheduler: each worker runs its share in collection order, whoever crashes or finishes early.

    ``config`` has the name that xdist's own schedulers give it: other plugins read it when a worker crashes.
    """

    def __init__(self, config: pytest.Config, shares: int) -> None:
        self.config = config
        self._shares = shares
        self._nodes: dict[WorkerController, list[str] | None] = {}
        self._collection: list[str] | None = None
        self._waiting: list[deque[int]] = [deque() for _ in range(shares)]
        self._running: list[deque[int]] = [deque() for _ in range(shares)]
        self._reruns: dict[str, int] = {}

    @property
    def nodes(self) -> list[WorkerController]:
        """Live workers."""
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        """Whether work can be handed out: once, when all first workers have collected; from then on always."""
        collected = sum(collection is not None for collection in self._nodes.values())
        return self._collection is not None or collected >= self._shares

    @property
    def has_pending(self) -> bool:
        """Whether items have not finished."""
        return any(self._waiting) or any(self._running)

    @property
    def tests_finished(self) -> bool:
        """Whether every item has finished."""
        return self._collection is not None and not self.has_pending

    def add_node(self, node: WorkerController) -> None:
        """A worker is up."""
        self._nodes[node] = None

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """A worker has collected. A replacement that collected something else cannot continue."""
        self._nodes[node] = list(collection)
        if self._collection is not None and list(collection) != self._collection:
            self._report_difference(node, self._collection, collection)
            self._drop(node)

    def schedule(self) -> None:
        """Hand out work to whoever has none yet."""
        if self._collection is None and not self._start():
            return
        for node in self.nodes:
            if self._nodes[node] is not None:
                self._feed(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A worker has finished an item."""
        self._running[self._share(node)].remove(item_index)
        self._feed(node)

    def mark_test_pending(self, item: str) -> None:
        """Run an item again, first thing, on the worker that its share belongs to. Once, however many ask for it."""
        assert self._collection is not None
        index = self._collection.index(item)
        share = next(share for share, indices in enumerate(split(self._collection, self._shares)) if index in indices)
        if index not in self._waiting[share]:
            self._waiting[share].appendleft(index)

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """Nothing is ever taken back from a worker."""
        raise NotImplementedError("TrajectoryScheduling takes no items back")

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker is gone. Returns the item that it was running; the rest of its share waits for its replacement."""
        del self._nodes[node]
        running = self._running[self._share(node)]
        if not running or self._collection is None:
            return None
        crashed = running.popleft()
        self._waiting[self._share(node)].extendleft(reversed(running))
        running.clear()
        return self._collection[crashed]

    def may_rerun(self, item: str) -> bool:
        """Whether an item that took its worker down gets another chance; counts the chances."""
        self._reruns[item] = self._reruns.get(item, 0) + 1
        return self._reruns[item] <= MAX_RERUNS

    def _share(self, node: WorkerController) -> int:
        return int(node.gateway.spec.env[SHARE_VARIABLE])

    def _start(self) -> bool:
        """Settle on the collection that all workers agree on."""
        (_, expected), *others = self._nodes.items()
        assert expected is not None
        different = [(node, found) for node, found in others if found is not None and found != expected]
        for node, found in different:
            self._report_difference(node, expected, found)
        self._collection = [] if different else expected
        for share, indices in enumerate(split(self._collection, self._shares)):
            self._waiting[share].extend(indices)
        return not different

    def _feed(self, node: WorkerController) -> None:
        """Keep a worker supplied; once it has everything, tell it that nothing follows, or it would wait for more."""
        if node.shutting_down:
            return
        share = self._share(node)
        waiting, running = self._waiting[share], self._running[share]
        indices = [waiting.popleft() for _ in range(min(len(waiting), IN_FLIGHT - len(running)))]
        if indices:
            running.extend(indices)
            node.send_runtest_some(indices)
        if not waiting:
            node.shutdown()

    def _drop(self, node: WorkerController) -> None:
        """Give up a share whose worker cannot continue: waiting for it would hang the session."""
        self._nodes[node] = None
        self._waiting[self._share(node)].clear()
        node.shutdown()

    def _report_difference(self, node: WorkerController, expected: Sequence[str], found: Sequence[str]) -> None:
        missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
        message = (
            f"worker {node.gateway.id} collected other items than the first worker: {len(missing)} missing "
            f"({', '.join(missing[:3])}), {len(extra)} extra ({', '.join(extra[:3])}); its share was not run. "
            "Items must depend on options and data files alone; were files edited during the run?"
        )
        report = pytest.CollectReport(nodeid=node.gateway.id, outcome="failed", longrepr=message, result=[])
        self.config.hook.pytest_collectreport(report=report)


def make_scheduler(config: pytest.Config) -> TrajectoryScheduling | None:
    """Our scheduler, for every distribution mode that runs each item once."""
    if config.getoption("dist") in ("no", "each"):
        return None
    from xdist.workermanage import parse_tx_spec_config

    return TrajectoryScheduling(config, len(parse_tx_spec_config(config)))


def handle_crash(crashitem: str, report: pytest.TestReport, scheduler: object) -> None:
    """Run the item of a crashed worker again, or report it as an error: a dead worker is no model's fault."""
    if not isinstance(scheduler, TrajectoryScheduling) or str(report.outcome) == "rerun":
        return  # pytest-rerunfailures has its own count
    if scheduler.may_rerun(crashitem):
        scheduler.mark_test_pending(crashitem)
        report.outcome = "rerun"  # type: ignore[assignment]
    else:
        report.when = "setup"
        if turn_id(crashitem) is not None:
            # The worker is gone that could have said whose item it was.
            report.user_properties.append((ITEM, ""))


def share_of_session(session: pytest.Session) -> list[pytest.Item]:
    """The items that this process will run."""
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    environ = os.environ if worker else {}
    indices = own_share([item.nodeid for item in session.items], environ, int(worker.get("workercount", 1)))
    return [session.items[index] for index in indices]
