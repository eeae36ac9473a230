"""Retries, pauses and patience, on a clock that only pauses move."""

import threading
from collections.abc import Callable, Sequence

import pytest

from ptxbench.agent import asking
from ptxbench.agent.asking import ATTEMPTS, FIRST_PAUSE_S, LONGEST_WAIT_S, Asker, ContextExhaustedError
from ptxbench.errors import InfrastructureError
from ptxbench.models.client import LASTING, TRANSIENT, ModelError, Request
from ptxbench.records import Message, Reply

REPLY = Reply(text="hi", ended="stop", finish_reason="stop", latency_s=0.1, model="m-1")
REQUEST = Request((Message(role="user", content="hello"),), "m-case-h100-v0-t0-turn0")


class Client:
    """Meets the scripted errors, then answers."""

    def __init__(self, errors: Sequence[ModelError] = ()) -> None:
        self.errors = list(errors)
        self.calls = 0

    def settings(self) -> dict[str, object]:
        return {}

    def complete(self, request: Request) -> Reply:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return REPLY

    def close(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def make(*errors: ModelError, stopped: Callable[[], bool] = lambda: False) -> tuple[Asker, Client, Clock]:
    client, clock = Client(errors), Clock()
    return Asker(client, "m", stopped, clock=clock, sleep=clock.sleep), client, clock  # type: ignore[arg-type]


def failed(kind: str, retry_after_s: float | None = None) -> ModelError:
    return ModelError(kind, f"it was {kind}", retry_after_s)


def test_an_answer_at_once_has_no_failed_attempts():
    asker, client, clock = make()
    assert asker.ask(REQUEST) == (REPLY, ())
    assert (client.calls, clock.now) == (1, 100.0)


@pytest.mark.parametrize("kind", sorted(TRANSIENT))
def test_what_may_pass_is_tried_again_after_growing_pauses(kind):
    asker, client, clock = make(*[failed(kind)] * 4)
    answer = asker.ask(REQUEST)
    assert client.calls == 5
    assert [attempt.kind for attempt in answer.attempts] == [kind] * 4
    assert answer.attempts[0].message == f"it was {kind}"
    pauses = [attempt.waited_s for attempt in answer.attempts]
    for number, pause in enumerate(pauses):
        assert FIRST_PAUSE_S * 2**number / 2 <= pause <= FIRST_PAUSE_S * 2**number
    assert clock.now - 100.0 == pytest.approx(sum(pauses), abs=0.01)


def test_pauses_are_not_the_same_for_everybody():
    pauses = set()
    for _ in range(8):
        asker, _, _ = make(failed("timeout"))
        pauses.add(asker.ask(REQUEST).attempts[0].waited_s)
    assert len(pauses) > 1


def test_the_provider_may_ask_for_a_longer_pause():
    asker, _, clock = make(failed("rate_limited", 300.0))
    (attempt,) = asker.ask(REQUEST).attempts
    assert 300.0 <= attempt.waited_s <= 300.0 + FIRST_PAUSE_S
    assert clock.now >= 400.0


def test_attempts_are_limited():
    asker, client, _ = make(*[failed("server_error")] * (ATTEMPTS + 1))
    with pytest.raises(InfrastructureError, match=rf"m: {ATTEMPTS} attempts failed, the last one: it was server_error"):
        asker.ask(REQUEST)
    assert client.calls == ATTEMPTS
    assert asker.ask(REQUEST).reply == REPLY


def test_so_is_patience():
    asker, client, clock = make(failed("rate_limited", LONGEST_WAIT_S + 1))
    with pytest.raises(InfrastructureError, match=r"the next attempt would be \d+ s away") as fault:
        asker.ask(REQUEST)
    assert (fault.value.kind, client.calls, clock.now) == ("model_rate_limited", 1, 100.0)


@pytest.mark.parametrize("kind", sorted(LASTING))
def test_what_will_not_pass_is_asked_once_by_all_together(kind):
    asker, client, clock = make(*[failed(kind)] * 5)
    for _ in range(3):
        with pytest.raises(InfrastructureError, match=rf"^m: it was {kind}") as fault:
            asker.ask(REQUEST)
        assert fault.value.kind == f"model_{kind}"
    assert (client.calls, clock.now) == (1, 100.0)


def test_a_full_context_is_no_fault_and_touches_nobody_else():
    asker, client, _ = make(failed("timeout"), failed("context_exhausted"))
    with pytest.raises(ContextExhaustedError, match="it was context_exhausted") as end:
        asker.ask(REQUEST)
    assert [attempt.kind for attempt in end.value.attempts] == ["timeout"]
    assert asker.ask(REQUEST).reply == REPLY
    assert client.calls == 3


def test_a_stop_ends_a_pause():
    stop = threading.Event()
    asker, client, clock = make(failed("rate_limited", 1000.0), stopped=stop.is_set)
    sleep = clock.sleep

    def stop_soon(seconds: float) -> None:
        sleep(seconds)
        if clock.now > 110.0:
            stop.set()

    asker._sleep = stop_soon
    with pytest.raises(InfrastructureError) as fault:
        asker.ask(REQUEST)
    assert (fault.value.kind, client.calls) == ("model_cancelled", 1)
    assert clock.now < 111.0


def test_a_cancelled_call_is_not_tried_again():
    asker, client, _ = make(failed("cancelled"), failed("cancelled"))
    with pytest.raises(InfrastructureError) as fault:
        asker.ask(REQUEST)
    assert (fault.value.kind, client.calls) == ("model_cancelled", 1)


def test_a_crowded_provider_is_left_alone_by_everybody():
    """One conversation is told to wait; another one of the same model waits too, though nobody told it."""
    asker, client, clock = make()
    told = threading.Event()

    def complete(request: Request) -> Reply:
        client.calls += 1
        if client.calls == 1:
            raise failed("rate_limited", 50.0)
        return REPLY

    client.complete = complete  # type: ignore[method-assign]
    seen: list[float] = []

    def sleep(seconds: float) -> None:
        if not told.is_set():
            told.set()
            other.start()
            other.join(10)
        clock.sleep(seconds)

    def ask() -> None:
        other_clock = Clock()
        other_clock.now = clock.now
        asker._sleep, asker._clock = other_clock.sleep, other_clock
        assert asker.ask(REQUEST).attempts == ()
        seen.append(other_clock.now)
        asker._sleep, asker._clock = clock.sleep, clock

    other = threading.Thread(target=ask)
    asker._sleep = sleep
    assert len(asker.ask(REQUEST).attempts) == 1
    assert seen
    assert seen[0] >= 150.0
    assert client.calls == 3


def test_pauses_are_cut_into_looks():
    assert asking._LOOK_S <= 1.0
