"""Calls that can be given up."""

import asyncio
import threading
import time

import pytest

from ptxbench.models.client import CANCELLED, ModelError
from ptxbench.models.event_loop import EventLoop, within


def never() -> bool:
    return False


@pytest.fixture
def loop():
    found = EventLoop()
    yield found
    found.close()


async def value() -> int:
    await asyncio.sleep(0)
    return 5


async def fails() -> int:
    raise TimeoutError("its own")


def test_hands_over_values_and_exceptions(loop):
    assert loop.run(value, timeout_s=5, cancelled=never) == 5
    with pytest.raises(TimeoutError, match=r"^its own$"):
        loop.run(fails, timeout_s=5, cancelled=never)


def sleeper(ended: threading.Event):
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    return sleep


def test_gives_up_at_the_time_limit(loop):
    ended = threading.Event()
    with pytest.raises(ModelError, match=r"within 0\.1 s") as caught:
        loop.run(sleeper(ended), timeout_s=0.1, cancelled=never)
    assert caught.value.kind == "timeout"
    assert ended.wait(5), "the coroutine was not cancelled"


def test_gives_up_when_told_to(loop):
    ended = threading.Event()
    started = time.monotonic()
    with pytest.raises(ModelError) as caught:
        loop.run(sleeper(ended), timeout_s=60, cancelled=lambda: time.monotonic() - started > 0.2)
    assert caught.value.kind == CANCELLED
    assert time.monotonic() - started < 20
    assert ended.wait(5)


def test_does_not_begin_what_was_given_up(loop):
    with pytest.raises(ModelError, match=r"before it began"):
        loop.run(value, timeout_s=5, cancelled=lambda: True)


def test_closing_ends_what_runs_and_what_comes_later(loop):
    ended, kinds = threading.Event(), []

    def call() -> None:
        with pytest.raises(ModelError) as caught:
            loop.run(sleeper(ended), timeout_s=60, cancelled=never)
        kinds.append(caught.value.kind)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.2)
    loop.close()
    thread.join(10)
    loop.close()
    assert kinds == [CANCELLED]
    assert ended.is_set()
    with pytest.raises(ModelError, match=r"closed"):
        loop.run(value, timeout_s=5, cancelled=never)


def test_within_says_what_was_missing():
    async def late() -> None:
        await within(0.01, asyncio.sleep(5), "a word")

    with pytest.raises(ModelError, match=r"expected a word within 0\.01 s") as caught:
        asyncio.run(late())
    assert caught.value.kind == "timeout"
