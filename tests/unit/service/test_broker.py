"""The broker alone, with an evaluation process that is played: what acceptance tests cannot bring about."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from ptxbench.cases import load_suite
from ptxbench.client import cuda_solution
from ptxbench.service import broker as module
from ptxbench.service.broker import Broker, RefusedError
from ptxbench.service.catalog import Catalog
from ptxbench.service.metrics import Metrics
from ptxbench.service.peer import State
from ptxbench.service.settings import Settings
from ptxbench.service.store import FILE, Finished, Store, StoredTask
from tests.conftest import ROOT
from tests.unit.factories import GEMM

H200 = {"device": {"name": "NVIDIA H200", "compute_capability": [9, 0]}}
DONE = Finished("completed", b'{"traces":null}', b"")


class PlayedPeer:
    """Takes tasks and does nothing with them."""

    state = State(ready=True, origin="replayed", health={}, fault="")

    def __init__(self, *_: object) -> None:
        self.given: list[StoredTask] = []

    async def start(self) -> None:
        return

    def give(self, task: StoredTask) -> None:
        self.given.append(task)

    async def close(self) -> None:
        return


class Played(Broker):
    """A broker whose peer is played."""

    @property
    def given(self) -> list[str]:
        peer = self._peer
        assert isinstance(peer, PlayedPeer)
        return [task.solution.rpartition("_")[0] for task in peer.given]

    def play(self, **changes: object) -> None:
        self._peer.state = PlayedPeer.state._replace(**changes)  # type: ignore[misc, arg-type]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a story with a started broker; ``state`` is what its peer is like."""
    monkeypatch.setattr(module, "Peer", PlayedPeer)
    catalog = Catalog(load_suite(ROOT, "primary").table)

    def running(story: Callable[[Played], Awaitable[None]], **state: object) -> None:
        async def whole() -> None:
            broker = Played(Settings(root=ROOT, slots=1, max_queue=3), catalog, Store(tmp_path), Metrics())
            broker.play(**state)
            await broker.start()
            try:
                await story(broker)
            finally:
                await broker.close()

        asyncio.run(whole())

    return running


def body(name: str, **changes: object) -> bytes:
    return json.dumps({"solution": cuda_solution(GEMM, "x", name=name).model_dump(mode="json"), **changes}).encode()


def test_death_brings_tasks_back_in_order_and_three_end_them(run) -> None:
    async def story(broker: Played) -> None:
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("a", "b", "c")]
        assert broker.given == ["a", "b"]
        for _ in range(2):
            broker.on_begun(ids[0])
            broker.on_died()
            broker.on_ready()
        assert broker.given == ["a", "b"] * 3
        broker.on_begun(ids[0])
        broker.on_died()
        await broker.wait([ids[0]], 10.0)
        task = json.loads(broker.view(ids[0]) or b"")
        assert (task["status"], task["fault"]["kind"]) == ("failed", "worker_died")
        broker.on_ready()
        assert broker.given[6:] == ["b", "c"]

    run(story)


def test_result_that_could_not_be_stored_is_got_again(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "STORE_RETRY_S", 0.0)

    async def story(broker: Played) -> None:
        task_id = (await broker.submit("evaluate", body("a"))).task_id
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE tasks RENAME TO elsewhere")
        broker.on_done(task_id, DONE, 0.1)
        while len(broker.given) < 2:
            await asyncio.sleep(0.01)
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE elsewhere RENAME TO tasks")
        broker.on_done(task_id, DONE, 0.1)
        await broker.wait([task_id], 10.0)
        assert broker.status(task_id) == "completed"

    run(story)


def test_submission_that_could_not_be_stored_is_refused(run, tmp_path: Path) -> None:
    async def story(broker: Played) -> None:
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("CREATE TRIGGER full BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(RefusedError, match="no room") as caught:
            await broker.submit("evaluate", body("a"))
        assert (caught.value.status, broker.given) == (503, [])

    run(story)


def test_a_full_queue_says_when_to_come_again(run) -> None:
    async def story(broker: Played) -> None:
        for name in "abcde":  # two are given, three wait
            await broker.submit("evaluate", body(name))
        with pytest.raises(RefusedError) as caught:
            await broker.submit("evaluate", body("f"))
        assert caught.value.status == 429
        assert caught.value.retry_after_s is not None
        assert not (await broker.submit("evaluate", body("a"))).created  # known ones need no room

    run(story)


def test_what_was_asked_of_another_kind_of_service_waits_for_one(run) -> None:
    ids = []

    async def ask(broker: Played) -> None:
        broker.accepting = True
        ids.append((await broker.submit("evaluate", body("a"))).task_id)

    async def measuring(broker: Played) -> None:
        assert broker.given == []
        started = time.monotonic()
        await broker.wait(ids, 0.2)  # or clients would ask without a pause
        assert time.monotonic() - started >= 0.19
        assert broker.status(ids[0]) == "pending"
        assert (await broker.submit("evaluate", body("a"))).task_id != ids[0]

    async def replaying(broker: Played) -> None:
        assert broker.given == ["a"]

    run(ask)
    run(measuring, origin="measured", health=H200)
    run(replaying)


def test_architecture_is_the_devices_once_it_is_known(run) -> None:
    async def story(broker: Played) -> None:
        with pytest.raises(RefusedError, match="the device is not known yet") as caught:
            await broker.submit("evaluate", body("a"))
        assert caught.value.status == 503
        await broker.submit("evaluate", body("named", arch="b200"))
        broker.play(origin="measured", health={"device": {"name": "B200", "compute_capability": [10, 0]}})
        task_id = (await broker.submit("evaluate", body("a"))).task_id
        assert json.loads(broker._live[task_id].task.request)["arch"] == "b200"

    run(story, origin="measured")


def test_devices_of_a_pool_are_told_apart(run) -> None:
    devices = [{"name": "0", "state": "busy"}, {"name": "1", "state": "quarantined", "reason": "ECC"}]

    async def story(broker: Played) -> None:
        health = broker.health()
        assert (health["status"], health["healthy_workers"], health["total_workers"]) == ("degraded", 1, 2)
        assert health["devices"] == devices
        broker.play(ready=False, fault="it died")
        broker.accepting = False
        assert broker.health()["status"] == "draining"

    run(story, origin="measured", health={**H200, "devices": devices})
