"""A thread for the network calls of a client, so that a caller can give up on one at any moment."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ptxbench.models.client import CANCELLED, ModelError

T = TypeVar("T")

POLL_S = 0.25
"""How often a waiting caller looks whether it was told to give up."""

_CLOSE_S = 5.0


class EventLoop:
    """Runs coroutines in one thread, started by the first. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float, cancelled: Callable[[], bool]) -> T:
        """What ``work`` returns, or its exception.

        Raises ModelError: ``timeout`` after ``timeout_s`` seconds, ``cancelled`` once ``cancelled()`` or after
        ``close``. The coroutine is then cancelled, and lets go of its connection.
        """
        deadline = time.monotonic() + timeout_s
        if cancelled():
            raise ModelError(CANCELLED, "the call was given up before it began")
        with self._lock:
            loop = self._started()
            future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            while not future.done():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ModelError("timeout", f"expected a whole answer within {timeout_s:g} s, found none")
                concurrent.futures.wait([future], timeout=min(POLL_S, left))
                if not future.done() and cancelled():
                    raise ModelError(CANCELLED, "the call was given up")
            return future.result()
        except concurrent.futures.CancelledError:
            raise ModelError(CANCELLED, "the client was closed during the call") from None
        finally:
            future.cancel()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel what runs, run ``last``, end the thread. Idempotent; at most some seconds."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        with contextlib.suppress(concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            asyncio.run_coroutine_threadsafe(_wind_down(last), loop).result(_CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_S)
        if not thread.is_alive():
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ModelError(CANCELLED, "the client is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A daemon: a call that hangs in a library must not keep the program from ending.
            self._thread = threading.Thread(target=self._loop.run_forever, name="ptxbench-model-calls", daemon=True)
            self._thread.start()
        return self._loop


async def _wind_down(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if last is not None:
        await last()
    await asyncio.get_running_loop().shutdown_asyncgens()


async def within(seconds: float, work: Awaitable[T], what: str) -> T:
    """What ``work`` yields. Raises ModelError ``timeout`` where it takes longer; ``what`` names what was missing."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise ModelError("timeout", f"expected {what} within {seconds:g} s, found none") from None
