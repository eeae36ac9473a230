"""Who gets the device: real threads, every order forced by what each waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.device_queue import DeviceQueue

SOON_S = 10.0


class Waiters:
    """Threads that ask for the device, and what came of it in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def ask(self, name: str, way: Callable[[], AbstractContextManager[None]]) -> None:
        def wait() -> None:
            try:
                with way():
                    self.order.append(name)
            except InfrastructureError as error:
                self.order.append(f"{name}: {error.kind}")

        thread = threading.Thread(target=wait, daemon=True)
        self._threads.append(thread)
        thread.start()
        time.sleep(0.05)  # it waits now, or never does

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SOON_S)
            assert not thread.is_alive()


def test_one_at_a_time() -> None:
    queue, inside, most = DeviceQueue(), 0, 0

    def use(way: Callable[[], AbstractContextManager[None]]) -> None:
        nonlocal inside, most
        for _ in range(200):
            with way():
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    threads = [
        threading.Thread(target=use, args=(way,)) for way in (queue.beginning, queue.continuing, queue.yielding) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert most == 1


def test_what_goes_on_comes_before_what_begins() -> None:
    queue, waiters = DeviceQueue(), Waiters()
    with queue.beginning():
        waiters.ask("first beginner", queue.beginning)
        waiters.ask("second beginner", queue.beginning)
        waiters.ask("first going on", queue.continuing)
        waiters.ask("second going on", queue.continuing)
        assert waiters.order == []
    waiters.join()
    assert {*waiters.order[:2]} == {"first going on", "second going on"}
    assert len(waiters.order) == 4


def test_a_check_that_can_wait_lets_a_waiting_evaluation_go_first() -> None:
    queue, waiters = DeviceQueue(), Waiters()
    with queue.continuing():
        waiters.ask("check", queue.yielding)
        waiters.ask("evaluation", queue.beginning)
        waiters.ask("memcheck", queue.continuing)
        assert waiters.order == []
    waiters.join()
    assert waiters.order == ["memcheck", "evaluation", "check"]


def test_a_check_that_can_wait_ends_with_the_session() -> None:
    stop, waiters = threading.Event(), Waiters()
    queue = DeviceQueue(stop.is_set)
    with queue.beginning():
        waiters.ask("check", queue.yielding)
        stop.set()
    waiters.join()
    assert waiters.order == ["check: stopped"]


def test_at_a_stop_who_waits_to_begin_is_told_and_what_was_begun_is_finished() -> None:
    stop, waiters = threading.Event(), Waiters()
    queue = DeviceQueue(stop.is_set)
    with queue.beginning():
        waiters.ask("beginner", queue.beginning)
        waiters.ask("going on", queue.continuing)
        stop.set()
    waiters.join()
    assert {*waiters.order} == {"beginner: stopped", "going on"}
    with pytest.raises(InfrastructureError, match="this candidate was not measured"), queue.beginning():
        pass
    with queue.continuing():
        pass


@pytest.mark.parametrize("way", ["beginning", "continuing", "yielding"])
def test_the_device_is_free_after_an_error(way: str) -> None:
    queue = DeviceQueue()
    with pytest.raises(ZeroDivisionError), getattr(queue, way)():
        raise ZeroDivisionError
    with queue.beginning():
        pass
