"""Sandboxes that are started ahead, with a stand-in for the program that needs a device."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import spares as module
from ptxbench.profiler.processes import Handle, await_end
from ptxbench.profiler.spares import Spares
from ptxbench.profiler.worker import Command
from tests.unit.profiler.stand_in import CONNECT, HONEST, IMPORTED, LOADED, READY, is_alive, write_program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What spares run in place of the sandbox's program; an honest one at first."""
    path = write_program(tmp_path, CONNECT + READY + LOADED + HONEST)
    monkeypatch.setattr(module, "sandbox_command", lambda **_: Command([sys.executable, str(path)]))
    return path


def warm_all(spares: Spares, *, beside_candidate: bool = False) -> None:
    """Rest as the oracle does, until every spare has been asked for its context."""
    deadline = time.monotonic() + 20
    while not all(worker.warming for worker in spares._waiting):
        assert time.monotonic() < deadline
        spares.warm(beside_candidate=beside_candidate)
        time.sleep(0.01)


def test_spares_are_ready_when_taken_and_gone_when_closed(program: Path) -> None:
    spares = Spares(2)
    spares.replenish()
    warm_all(spares)
    spares.settle()
    taken = [spares.take() for _ in range(3)]
    pids = [worker.process.pid for worker in taken]
    assert len(set(pids)) == 3
    for worker in taken:
        worker.load({})
        spares.retire(worker)
    spares.settle()
    assert not any(is_alive(pid) for pid in pids)
    assert not taken[0].folder.exists()
    last = spares.take()
    spares.retire(last)
    spares.close()
    assert not is_alive(last.process.pid)


def test_nothing_is_timed_beside_a_killed_candidate_that_keeps_the_device(program: Path) -> None:
    """A kernel that the driver cannot stop keeps its process: the next candidate is not measured beside it."""
    spares = Spares(1)
    with subprocess.Popen(["sleep", "100"]) as stuck:
        await_end(Handle(stuck.pid), 0.0)
        with pytest.raises(InfrastructureError, match="has not let go of the device yet") as caught:
            spares.settle()
        assert caught.value.kind == "busy_device"
        stuck.kill()
    spares.settle()
    spares.close()


def test_contexts_are_only_created_when_asked_for(program: Path) -> None:
    spares = Spares(2)
    spares.replenish()
    spares.settle()
    assert not any(worker.warming for worker in spares._waiting)
    taken = spares.take()
    assert taken.warming
    assert not any(worker.warming for worker in spares._waiting)
    taken.close()
    spares.close()


def test_settling_waits_for_contexts_that_are_under_way(program: Path) -> None:
    slow = READY.replace(IMPORTED, f"{IMPORTED}time.sleep(0.3)\n")
    program.write_text(program.read_text().replace(READY, slow))
    spares = Spares(1)
    spares.replenish()
    warm_all(spares)
    (spare,) = spares._waiting
    assert not spare.answered(0)
    spares.settle()
    assert spare._ready
    spares.close()


def test_failure_while_settling_drops_the_spare(program: Path) -> None:
    program.write_text(program.read_text().replace(IMPORTED, f"{IMPORTED}sys.exit('no context')\n"))
    spares = Spares(1)
    spares.replenish()
    warm_all(spares)
    with pytest.raises(InfrastructureError, match="no context"):
        spares.settle()
    assert not spares._waiting


def test_the_warm_spare_is_taken_first(program: Path) -> None:
    spares = Spares(2)
    spares.replenish()
    warm = spares._waiting[1]
    warm.wait_ready()
    assert spares.take() is warm
    warm.close()
    spares.close()


def test_a_burst_does_not_start_others_before_few_are_left(program: Path) -> None:
    spares = Spares(3)
    spares.replenish()
    for left in (2, 3, 2):  # below two, three are waiting again
        spares.take().close()
        spares.used()
        assert len(spares._waiting) == left
    spares.close()


def test_rest_waits_for_the_end_of_a_burst(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spares = Spares(2)
    spares.replenish()
    warm_all(spares)
    monkeypatch.setattr(module, "LOW_WATER", 0)
    spares.take().close()
    spares.used()
    spares.rest()
    assert len(spares._waiting) == 1
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    spares.rest()
    assert len(spares._waiting) == 2
    spares.close()


def test_spare_that_cannot_start_is_met_once(program: Path) -> None:
    honest = program.read_text()
    program.write_text("raise SystemExit('no driver')\n")
    spares = Spares(1)
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="no driver"):
            spares.take()
    program.write_text(honest)
    worker = spares.take()
    worker.load({})
    worker.close()
    spares.close()


NO_MEMORY = f"{IMPORTED}sys.exit('cudaErrorMemoryAllocation')\n"


def test_a_candidate_that_leaves_no_memory_for_the_next_ones_contexts_harms_nobody(program: Path) -> None:
    """Spares are warmed behind its last timed call, while it still lives: what fails there is not the next one's."""
    honest = program.read_text()
    program.write_text(honest.replace(IMPORTED, NO_MEMORY))
    spares = Spares(2)
    spares.replenish()
    warm_all(spares, beside_candidate=True)
    program.write_text(honest)
    last = spares.take()  # both are dropped, and one is started that nobody disturbs
    assert not spares._beside
    last.load({})
    spares.retire(last)
    spares.close()


def test_settling_behind_such_a_candidate_is_no_fault_and_ends_it(program: Path) -> None:
    spares = Spares(3)
    candidate = spares.take()
    program.write_text(program.read_text().replace(IMPORTED, NO_MEMORY))
    spares.close()
    spares.replenish()
    warm_all(spares, beside_candidate=True)
    spares.retire(candidate)
    spares.settle()
    assert not spares._waiting
    assert not is_alive(candidate.process.pid)


def test_a_spare_that_fails_on_its_own_is_told_of_when_all_is_cleared_away(program: Path) -> None:
    spares = Spares(2)
    used = spares.take()
    program.write_text(program.read_text().replace(IMPORTED, NO_MEMORY))
    spares.close()
    spares.replenish()
    warm_all(spares)
    spares.retire(used)
    with pytest.raises(InfrastructureError, match="cudaErrorMemoryAllocation"):
        spares.settle()
    assert not spares._waiting
    assert not is_alive(used.process.pid)


def test_a_context_that_was_under_way_before_the_candidate_fails_on_its_own(program: Path) -> None:
    honest = program.read_text()
    program.write_text(honest.replace(IMPORTED, NO_MEMORY))
    spares = Spares(1)
    spares.replenish()
    warm_all(spares)
    spares.warm(beside_candidate=True)
    program.write_text(honest)  # a spare that took its place would start
    with pytest.raises(InfrastructureError, match="cudaErrorMemoryAllocation"):
        spares.take()
    spares.close()
