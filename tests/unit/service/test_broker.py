"""The broker alone, with an evaluation process that is played: what acceptance tests cannot bring about."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from ptxbench.cases import load_suite
from ptxbench.client import cuda_solution
from ptxbench.service import app as app_module
from ptxbench.service import broker as module
from ptxbench.service.app import create_app
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

    def running(story: Callable[[Played], Awaitable[None]], keep_days: float = 30.0, **state: object) -> None:
        settings = Settings(root=ROOT, slots=1, max_queue=3, keep_days=keep_days)

        async def whole() -> None:
            broker = Played(settings, catalog, Store(tmp_path), Metrics())
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
        assert broker.given == ["a", "b", "a", "a"]  # alone, once something died of it
        broker.on_begun(ids[0])
        broker.on_died()
        await broker.wait([ids[0]], 10.0)
        task = json.loads(broker.view(ids[0]) or b"")
        assert (task["status"], task["fault"]["kind"]) == ("failed", "worker_died")
        broker.on_ready()
        assert broker.given[4:] == ["b", "c"]

    run(story)


def test_what_ran_beside_a_deadly_task_does_not_fail_with_it(run) -> None:
    async def story(broker: Played) -> None:
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("innocent", "deadly", "waits")]
        for task_id in ids[:2]:
            broker.on_begun(task_id)
        broker.on_died()
        assert broker.health()["queue_size"] == 3
        broker.on_ready()
        assert broker.given[2:] == ["innocent"]
        ids.append((await broker.submit("evaluate", body("comes"))).task_id)
        assert broker.given[2:] == ["innocent"]
        broker.on_done(ids[0], DONE, 0.1)
        ids.append((await broker.submit("evaluate", body("last"))).task_id)
        assert broker.given[3:] == ["deadly"]
        for _ in range(2):
            broker.on_begun(ids[1])
            broker.on_died()
            broker.on_ready()
        await broker.wait(ids[:2], 10.0)
        assert broker.given[3:] == ["deadly", "deadly", "waits", "comes"]
        assert [broker.status(task_id) for task_id in ids[:2]] == ["completed", "failed"]

    run(story)


def test_result_that_could_not_be_stored_is_kept_and_not_measured_again(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "STORE_RETRY_S", 0.02)

    async def story(broker: Played) -> None:
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("a", "b", "c")]
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE tasks RENAME TO elsewhere")
        broker.on_done(ids[0], DONE, 0.1)
        while broker.health()["status"] == "ok":
            await asyncio.sleep(0.01)
        assert "make room" in broker.health()["message"]
        broker.on_done(ids[1], DONE, 0.1)
        await asyncio.sleep(0.1)
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE elsewhere RENAME TO tasks")
        await broker.wait(ids[:2], 10.0)
        assert [broker.status(task_id) for task_id in ids] == ["completed", "completed", "pending"]
        assert broker.given[:2] == ["a", "b"]
        while broker.given[2:] != ["c"]:  # begun once there was room for results, and not before
            await asyncio.sleep(0.01)
        assert broker.health()["status"] == "ok"

    run(story)


def test_submission_that_could_not_be_stored_is_refused(run, tmp_path: Path) -> None:
    async def story(broker: Played) -> None:
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("CREATE TRIGGER full BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(RefusedError, match="no room") as caught:
            await broker.submit("evaluate", body("a"))
        assert (caught.value.status, broker.given) == (503, [])
        assert (broker.health()["status"], "no room" in broker.health()["message"]) == ("degraded", True)
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("DROP TRIGGER full")
        assert (await broker.submit("evaluate", body("a"))).created  # and not the answer from before
        assert (broker.given, broker.health()["status"]) == (["a"], "ok")

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
        broker._finished_at.extend([time.monotonic() - 86_400.0, time.monotonic()])
        with pytest.raises(RefusedError) as caught:
            await broker.submit("evaluate", body("f"))
        assert caught.value.retry_after_s == 60  # at the most, however slow it was

    run(story)


def test_a_crowd_finds_no_more_room_than_one_after_the_other(run) -> None:
    async def story(broker: Played) -> None:
        bodies = [body(f"crowd{number}") for number in range(20)]
        found = await asyncio.gather(*(broker.submit("evaluate", one) for one in bodies), return_exceptions=True)
        taken = [one for one in found if not isinstance(one, RefusedError)]
        assert len(taken) == 5  # two are given, three wait
        assert {one.status for one in found if isinstance(one, RefusedError)} == {429}

    run(story)


def test_bytes_that_wait_are_bounded_and_given_back(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUE_BYTES", 3000)

    async def story(broker: Played) -> None:
        broker.play(ready=False)
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("a", "b")]
        with pytest.raises(RefusedError, match="the queue is full"):
            await broker.submit("evaluate", body("large" * 400))
        broker.play()
        broker.on_ready()
        for task_id in ids:
            broker.on_begun(task_id)
            broker.on_done(task_id, DONE, 0.1)
        assert broker._waiting_bytes == 0

    run(story)


def test_what_ends_while_the_disk_is_full_is_written_at_the_last(run, tmp_path: Path) -> None:
    ids = []

    async def full(broker: Played) -> None:
        ids.append((await broker.submit("evaluate", body("a"))).task_id)
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE tasks RENAME TO elsewhere")
        broker.on_done(ids[0], DONE, 0.1)
        while broker.health()["status"] == "ok":
            await asyncio.sleep(0.01)
        with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
            connection.execute("ALTER TABLE elsewhere RENAME TO tasks")

    async def after(broker: Played) -> None:
        assert (broker.status(ids[0]), broker.given) == ("completed", [])

    run(full)
    run(after)


def test_one_that_drains_takes_and_begins_nothing(run) -> None:
    async def story(broker: Played) -> None:
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("a", "b", "c")]
        draining = asyncio.ensure_future(broker.drain())
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="draining") as caught:
            await broker.submit("evaluate", body("d"))
        assert caught.value.status == 503
        for task_id in ids[:2]:
            broker.on_done(task_id, DONE, 0.1)
        await asyncio.wait_for(draining, 10.0)
        assert broker.given == ["a", "b"]
        await asyncio.wait_for(broker.wait(ids, 60.0), 10.0)  # whoever waits is answered

    run(story)


@pytest.mark.parametrize("dies", [True, False])
def test_a_drain_ends_with_its_time_and_with_whoever_it_waits_for(run, dies: bool) -> None:
    async def story(broker: Played) -> None:
        broker.settings = broker.settings._replace(drain_s=60.0 if dies else 0.1)
        await broker.submit("evaluate", body("endless"))
        draining = asyncio.ensure_future(broker.drain())
        await asyncio.sleep(0.05)
        assert not draining.done()
        if dies:
            broker.play(ready=False)
        await asyncio.wait_for(draining, 10.0)

    run(story)


def test_what_is_old_is_forgotten(run) -> None:
    async def ends(broker: Played) -> None:
        task_id = (await broker.submit("evaluate", body("a"))).task_id
        broker.on_done(task_id, DONE, 0.1)
        await broker.wait([task_id], 10.0)
        assert broker.status(task_id) == "completed"
        await asyncio.sleep(0.01)
        sweeping = asyncio.ensure_future(broker._sweep())  # as another service begins, or an hour later
        while broker.status(task_id) is not None:
            await asyncio.sleep(0.01)
        sweeping.cancel()

    run(ends, keep_days=0.005 / 86_400)


def test_polls_leave_nothing_at_a_task_that_goes_on(run) -> None:
    async def story(broker: Played) -> None:
        ids = [(await broker.submit("evaluate", body(name))).task_id for name in ("a", "b")]
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(3):
            await broker.wait(ids, 0.01)
        asyncio.get_running_loop().call_later(0.02, gone.set_result, None)
        started = time.monotonic()
        await broker.wait(ids, 60.0, gone)
        assert time.monotonic() - started < 30.0
        assert not any(broker._live[task_id].done._callbacks for task_id in ids)

    run(story)


def test_poll_of_somebody_who_left_ends(run) -> None:
    async def story(broker: Played) -> None:
        task_id = (await broker.submit("evaluate", body("a"))).task_id
        for method, path, content in (
            ("GET", f"/tasks/{task_id}", b""),
            ("POST", "/tasks/batch", json.dumps({"task_ids": [task_id], "timeout": 60}).encode()),
        ):
            messages = [{"type": "http.request", "body": content}, {"type": "http.disconnect"}]
            sent: list[dict[str, object]] = []

            async def receive(left=messages):
                return left.pop(0)

            async def send(message, sent=sent):
                sent.append(message)

            scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"timeout=60"}
            async with asyncio.timeout(20.0):
                await create_app(broker)(scope, receive, send)
            assert sent[0]["status"] == 200

    run(story)


def test_answer_about_many_tasks_is_bounded(run, monkeypatch) -> None:
    monkeypatch.setattr(app_module, "MAX_ANSWER_BYTES", 1000)

    async def story(broker: Played) -> None:
        task_id = (await broker.submit("evaluate", body("a"))).task_id
        transport = httpx.ASGITransport(create_app(broker))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            one, many = [await http.post("/tasks/batch", json={"task_ids": [task_id] * n}) for n in (1, 100)]
        assert (one.status_code, one.json()[0]["status"]) == (200, "pending")
        assert (many.status_code, "ask for fewer" in many.json()["detail"]) == (400, True)

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
        assert b"ptxbench_tasks_requeued_total 1.0" in broker.metrics.text()

    run(ask)
    run(measuring, origin="measured", health=H200)
    run(replaying)


def test_architecture_is_the_devices_once_it_is_known(run) -> None:
    async def story(broker: Played) -> None:
        with pytest.raises(RefusedError, match="the device is not known yet") as caught:
            await broker.submit("evaluate", body("a"))
        assert caught.value.status == 503
        await broker.submit("evaluate", body("named", arch="b200"))
        hardware = cuda_solution(GEMM, "x", name="hardware", arch="h100").model_dump(mode="json")
        await broker.submit("evaluate", json.dumps({"solution": hardware}).encode())
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
