import json
import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.service.store import FILE, Finished, Store, StoredTask, failed

RESULT = Finished("completed", b'{"traces":null}', zlib.compress(b"[]"))


def task(name: str = "a", **changes: object) -> StoredTask:
    made = StoredTask(name, f"content of {name}", "evaluate", "gemm", f"{name}_1", "me", "bulk", b"{}", time.time())
    return made._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path):
    store = Store(tmp_path)
    yield store
    store.close()


def test_acknowledged_task_is_found_by_the_next_service(tmp_path: Path) -> None:
    first = Store(tmp_path)
    wanted = [task("b", created_at=2.0), task("a", created_at=1.0, request=b'{"solution":1}')]
    for one in wanted:
        first.add(one).result(10)
    first.close()
    second = Store(tmp_path)
    assert second.unfinished() == wanted[::-1]  # oldest first
    second.close()


def test_result_is_written_once(store: Store) -> None:
    store.add(task()).result(10)
    assert store.finish("a", RESULT).result(10) is True
    assert store.finish("a", failed("again")).result(10) is False
    known = store.find("a")
    assert known is not None
    assert (known.status, known.result) == ("completed", RESULT.result)
    assert store.unfinished() == []
    assert store.detail("a") == b"[]"


def test_completed_task_is_not_begun_again_and_a_failed_one_is(store: Store) -> None:
    for name, end in (("a", RESULT), ("b", failed("no luck"))):
        store.add(task(name)).result(10)
        store.finish(name, end).result(10)
        store.add(task(name)).result(10)
    assert [one.id for one in store.unfinished()] == ["b"]
    assert store.counts() == {"completed": 1, "pending": 1}


def test_many_writes_are_few_transactions(store: Store) -> None:
    batches: list[int] = []
    store.on_batch = lambda count, seconds: batches.append(count)
    blocker = sqlite3.connect(store._path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")  # the writer has to wait, and the rest gathers behind it
    waiting = [store.add(task(f"t{number}")) for number in range(300)]
    blocker.execute("COMMIT")
    blocker.close()
    for done in waiting:
        done.result(30)
    assert sum(batches) == 300
    assert len(batches) < 30


def test_nobody_else_on_the_machine_can_read_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store")
    store.add(task()).result(10)
    files = list((tmp_path / "deep" / "store").iterdir())
    assert {file.suffix for file in files} == {".sqlite", ".lock", ".sqlite-wal", ".sqlite-shm"}
    assert {file.stat().st_mode & 0o077 for file in (*files, files[0].parent)} == {0}
    store.close()


def test_a_second_service_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no other service uses"):
        Store(tmp_path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a database, but long enough to be read as one " * 100)
    with pytest.raises(InputError, match="expected a task store"):
        Store(tmp_path)


def test_a_store_that_cannot_be_written_is_not_called_broken(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("DROP TABLE tasks")
        connection.execute("CREATE VIEW tasks AS SELECT 1")  # no index can be made on it
    with pytest.raises(InputError, match=r"that can be read and written.*make room"):
        Store(tmp_path)


def test_another_layout_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="version 99"):
        Store(tmp_path)


def test_whoever_waits_hears_that_nothing_could_be_written(store: Store) -> None:
    with closing(sqlite3.connect(store._path)) as connection, connection:
        connection.execute("ALTER TABLE tasks RENAME TO elsewhere")
    with pytest.raises(sqlite3.OperationalError):
        store.add(task()).result(10)
    with closing(sqlite3.connect(store._path)) as connection, connection:
        connection.execute("ALTER TABLE elsewhere RENAME TO tasks")
    store.add(task()).result(10)


def test_a_write_that_fails_in_any_way_does_not_end_the_writer(store: Store) -> None:
    odd = task("odd", request=None)  # as where there is no memory to pack it
    with pytest.raises(TypeError):
        store.add(odd).result(10)
    store.add(task()).result(10)
    assert [one.id for one in store.unfinished()] == ["a"]


def test_old_results_are_forgotten_and_waiting_tasks_are_not(store: Store) -> None:
    store.add(task("old")).result(10)
    store.add(task("waits", created_at=1.0)).result(10)
    store.finish("old", RESULT).result(10)
    store.remove_older(1.0).result(10)
    assert store.find("old") is not None
    store.remove_older(0.0).result(10)
    assert store.find("old") is None
    assert store.find("waits") is not None


def test_failed_task_has_the_fields_of_an_answer() -> None:
    document = json.loads(failed("why", {"kind": "k", "message": "m"}).result)
    assert document == {
        "traces": None,
        "logs": None,
        "error": "why",
        "fault": {"kind": "k", "message": "m"},
        "results": [],
    }
