"""Tasks on disk: what was acknowledged is not lost, and a result is written once.

SQLite in WAL mode. One thread writes; everything that waits for it becomes one transaction, so that hundreds of
submissions cost one commit. ``synchronous = NORMAL``: a commit survives the death of the process at any instant; a
power cut may take the last commits with it, and leaves the file whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.client.shapes import TaskKind, TaskStatus
from ptxbench.errors import InputError

FILE = "tasks.sqlite"
SCHEMA_VERSION = 1
MOST_AT_ONCE = 512
"""Writes of one transaction."""
_PACKED = 1
"""Level of zlib: CUDA sources shrink to a quarter at 60 MB/s."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY,
    content TEXT NOT NULL,
    kind TEXT NOT NULL,
    definition TEXT NOT NULL,
    solution TEXT NOT NULL,
    client TEXT NOT NULL,
    priority TEXT NOT NULL,
    status TEXT NOT NULL,
    request BLOB NOT NULL,
    created_at REAL NOT NULL,
    finished_at REAL,
    result BLOB,
    detail BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unfinished ON tasks (created_at) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS finished ON tasks (finished_at) WHERE finished_at IS NOT NULL;
"""


class StoredTask(NamedTuple):
    """A task that is to be done."""

    id: str
    content: str
    """Hash of everything that decides what the task is, behind ``measured:`` or ``replayed:``."""
    kind: TaskKind
    definition: str
    solution: str
    """Its normalized name."""
    client: str
    priority: str
    request: bytes
    """JSON of the submission."""
    created_at: float
    """Seconds since 1970."""


class Finished(NamedTuple):
    """How a task ended."""

    status: TaskStatus
    result: bytes
    """JSON object: the fields of ``Task`` that the evaluation fills."""
    detail: bytes
    """JSON list of ``TaskDetail``, packed with zlib."""


def failed(error: str, fault: dict[str, str] | None = None) -> Finished:
    """The end of a task that found nothing; ``fault`` are the fields of an InfrastructureFault."""
    document: dict[str, Any] = {"traces": None, "logs": None, "error": error, "fault": fault, "results": []}
    return Finished("failed", json.dumps(document).encode(), b"")


class Known(NamedTuple):
    """What the store says of a task."""

    id: str
    content: str
    kind: TaskKind
    definition: str
    solution: str
    status: TaskStatus
    result: bytes | None


_Write = Callable[[sqlite3.Connection], object]


class Store:
    """The tasks of one service. Writes from any thread; reads from the thread that opened it."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError for a folder that another service uses, that cannot be written, or a file of no store."""
        self._path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Solutions are their clients' business. SQLite gives its other files the rights of this one.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._lock = os.open(folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"--store {folder}: expected a folder that can be written, found: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InputError(
                f"--store {folder}: expected a store that no other service uses, found one at work; stop it, or name "
                "another folder"
            ) from None
        try:
            self._reading = self._open()
            self._reading.executescript(_SCHEMA)
            self._expect_version()
        except sqlite3.OperationalError as error:
            os.close(self._lock)
            raise InputError(
                f"{self._path}: expected a task store that can be read and written, found: {error}; make room on its "
                "disk, give this user the right to write, or name another folder"
            ) from error
        except sqlite3.Error as error:
            os.close(self._lock)
            raise InputError(
                f"{self._path}: expected a task store, found: {error}; move the file away or name another folder"
            ) from error
        self._queue: queue.SimpleQueue[tuple[_Write, Future[object]] | None] = queue.SimpleQueue()
        self._closed = False
        self.on_batch: Callable[[int, float], None] = lambda count, seconds: None
        """Hears of each transaction: how many writes, how many seconds."""
        self._writer = threading.Thread(target=self._write_all, name="ptxbench-store", daemon=True)
        self._writer.start()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _expect_version(self) -> None:
        (version,) = self._reading.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"version {version} of the layout, where this one reads {SCHEMA_VERSION}")
        self._reading.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def add(self, task: StoredTask) -> Future[object]:
        """Keep a task that is to be done. Done when it is durable; the same id again starts it anew."""
        return self._put(
            lambda connection: connection.execute(
                "INSERT INTO tasks (id, content, kind, definition, solution, client, priority, status, request,"
                " created_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " status = 'pending', finished_at = NULL, result = NULL, detail = NULL WHERE status = 'failed'",
                (*task[:7], zlib.compress(task.request, _PACKED), task.created_at),
            )
        )

    def finish(self, task_id: str, finished: Finished) -> Future[object]:
        """Keep a result, unless the task has one. The future's result: whether this was the first."""
        return self._put(
            lambda connection: (
                connection.execute(
                    "UPDATE tasks SET status = ?, finished_at = ?, result = ?, detail = ?"
                    " WHERE id = ? AND status = 'pending'",
                    (finished.status, time.time(), finished.result, finished.detail, task_id),
                ).rowcount
                == 1
            )
        )

    def remove_older(self, days: float) -> Future[object]:
        """Forget tasks that finished more than ``days`` days ago."""
        before = time.time() - days * 86_400
        return self._put(lambda connection: connection.execute("DELETE FROM tasks WHERE finished_at < ?", (before,)))

    def find(self, task_id: str) -> Known | None:
        """A task; None: there is none."""
        row = self._reading.execute(
            "SELECT id, content, kind, definition, solution, status, result FROM tasks WHERE id = ?", (task_id,)
        ).fetchone()
        return Known(*row) if row is not None else None

    def detail(self, task_id: str) -> bytes | None:
        """JSON of the details of a finished task; None: it has none."""
        row = self._reading.execute("SELECT detail FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return zlib.decompress(row[0]) if row is not None and row[0] else None

    def unfinished(self) -> list[StoredTask]:
        """What was acknowledged and has no result, oldest first."""
        rows = self._reading.execute(
            "SELECT id, content, kind, definition, solution, client, priority, request, created_at FROM tasks"
            " WHERE status = 'pending' ORDER BY created_at"
        )
        return [StoredTask._make((*row[:7], zlib.decompress(row[7]), row[8])) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many tasks there are, by status."""
        return dict(self._reading.execute("SELECT status, count(*) FROM tasks GROUP BY status").fetchall())

    def close(self) -> None:
        """Finish all writes, and let another service use the store. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._writer.join()
        self._reading.close()
        os.close(self._lock)

    def _put(self, write: _Write) -> Future[object]:
        done: Future[object] = Future()
        self._queue.put((write, done))
        return done

    def _write_all(self) -> None:
        connection = self._open()
        ended = False
        while not ended:
            batch, ended = self._batch()
            if batch:
                started = time.perf_counter()
                _commit(connection, batch)
                self.on_batch(len(batch), time.perf_counter() - started)
        connection.close()

    def _batch(self) -> tuple[list[tuple[_Write, Future[object]]], bool]:
        """Everything that waits, and whether it was the last."""
        batch: list[tuple[_Write, Future[object]]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= MOST_AT_ONCE:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True


def _commit(connection: sqlite3.Connection, batch: list[tuple[_Write, Future[object]]]) -> None:
    """All or nothing; whoever waits hears of it after the commit."""
    answers: list[object] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        answers = [write(connection) for write, _ in batch]
        connection.execute("COMMIT")
    except Exception as error:  # no memory, say: without this thread nobody would ever be answered again
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        for _, done in batch:
            done.set_exception(error)
        return
    for (_, done), answer in zip(batch, answers, strict=True):
        done.set_result(answer)
