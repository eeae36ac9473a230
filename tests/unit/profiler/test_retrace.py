"""The calls of a candidate that did not end, made once more: real processes and conversations, no device."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import hang, retrace
from ptxbench.records import WaitingPlace
from tests.unit.profiler.stand_in import CONNECT, HONEST, LOADED, READY, Start, is_alive

PLACE = WaitingPlace(kernel="k", offset=16, threads=1, blocks=1, block=(0, 0, 0), thread=(0, 0, 0))
CALLS = 1 + 2 + 6


@pytest.fixture
def state() -> Any:
    staged: list[Any] = []
    arena = SimpleNamespace(arm=lambda: None)
    case = SimpleNamespace(warmup=2, iterations=6)
    return SimpleNamespace(case=case, arena=arena, checked=["draw"], stage=staged.append, staged=staged)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes that a debugger was sent to, all alive then."""
    found: list[int] = []

    def look(pid: int, folder: Path) -> hang.Waiting:
        assert is_alive(pid)
        assert folder.is_dir()
        found.append(pid)
        return hang.Waiting((PLACE,))

    monkeypatch.setattr(hang, "look", look)
    monkeypatch.setattr(retrace, "SETTLE_S", 0.5)
    return found


def sandbox(calls: str) -> str:
    return CONNECT + READY + LOADED + calls


@pytest.mark.parametrize("call", [1, 4, CALLS])
def test_the_call_that_does_not_end_again_is_looked_at(start: Start, state: Any, looked: list[int], call: int) -> None:
    program = sandbox(f'for call in range({call - 1}):\n    hear()\n    say(b"o")\nhear()\ntime.sleep(60)\n')
    workers = []
    found = retrace.look_again(state, {}, lambda: workers.append(start(program)) or workers[0])  # type: ignore[func-returns-value]
    assert found.places == (PLACE,)
    assert looked == [workers[0].process.pid]
    assert state.staged == ["draw"] * call
    assert not is_alive(looked[0])


def test_calls_that_end_this_time_leave_it_unknown(start: Start, state: Any, looked: list[int]) -> None:
    found = retrace.look_again(state, {}, lambda: start(sandbox(HONEST)))
    assert found == hang.Waiting(unknown="when its calls were made once more, each of them ended")
    assert looked == []
    assert len(state.staged) == CALLS


def test_calls_that_are_merely_slow_are_not_followed_for_ever(
    start: Start, state: Any, looked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrace, "RETRACE_TIMEOUT_S", 1.5)
    slow = sandbox('while True:\n    hear()\n    time.sleep(0.4)\n    say(b"o")\n')
    assert retrace.look_again(state, {}, lambda: start(slow)).places == ()
    assert 1 <= len(state.staged) < CALLS
    assert looked == []


def test_a_device_without_memory_leaves_the_verdict_alone(start: Start, state: Any, looked: list[int]) -> None:
    """A candidate may fill it on purpose: a timeout must not become a fault of ours."""

    def full(_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    state.stage = full
    found = retrace.look_again(state, {}, lambda: start(sandbox(HONEST)))
    assert found.unknown == "its calls could not be made once more: CUDA out of memory"


@pytest.mark.parametrize("program", [CONNECT, sandbox("hear()\nos._exit(3)\n"), sandbox('hear()\nsay(b"{}")\n')])
def test_a_sandbox_that_fails_leaves_it_unknown(start: Start, state: Any, looked: list[int], program: str) -> None:
    found = retrace.look_again(cast(Any, state), {}, lambda: start(program))
    assert found.unknown.startswith("its calls could not be made once more: ")
    assert found.places == ()
    assert looked == []


def test_a_sandbox_that_cannot_be_started_leaves_it_unknown(state: Any) -> None:
    def refuse() -> Any:
        raise InfrastructureError("disk_full", "no room" * 100)

    found = retrace.look_again(state, {}, refuse)
    assert found.unknown.startswith("its calls could not be made once more: no room")
    assert len(found.unknown) <= hang.MAX_REASON_CHARS
