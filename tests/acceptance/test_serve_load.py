"""Many clients at once, and a server that is killed in between: nothing is lost, nothing has two results.

The full form, with figures, is ``tests/perf/bench_serve.py``.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.kernels import load
from tests.support.service import Fleet, Load, Service, serving
from tests.unit.factories import GEMM

CLIENTS, TASKS = 40, 400


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Load, Path]:
    """What the clients saw, and the store that is left."""
    folder = tmp_path_factory.mktemp("load")
    with serving(folder, "--profiler", "replay") as service:
        load = asyncio.run(under_fire(service))
    return load, folder / "store" / "tasks.sqlite"


async def under_fire(service: Service) -> Load:
    # Screened before anything is compiled: what is tried here is the service, and not the compiler.
    fleet = Fleet(service, clients=CLIENTS, tasks=TASKS, kernels=[(GEMM, load("cublas_include"))])

    async def kill_in_the_middle() -> None:
        while fleet.finished < TASKS / 2:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)

    _, found = await asyncio.gather(kill_in_the_middle(), fleet.run(ramp_s=0.5, think_s=0.05))
    return found


def test_every_task_has_one_result(loaded: tuple[Load, Path]) -> None:
    found, store = loaded
    assert found.broken > 0  # or nobody noticed the kill
    assert len(found.results) == len(set(found.ids.values())) == TASKS
    answers = [answer for answers in found.results.values() for answer in answers]
    assert len(answers) == TASKS
    assert {answer["results"][0]["verdict"]["outcome"] for answer in answers} == {"screened"}
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT id, status FROM tasks").fetchall()
    assert sorted(rows) == sorted((task_id, "completed") for task_id in found.ids.values())


def test_every_answer_is_about_the_task_that_was_asked_for(loaded: tuple[Load, Path]) -> None:
    found, _ = loaded
    for name, (answer,) in found.results.items():
        assert answer["task_id"] == found.ids[name]
        assert answer["solution"].rpartition("_")[0] == name
        assert answer["traces"][0]["solution"] == answer["solution"]
