"""What becomes of an operation whose actor, object or device fails, over answers of this process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler.ray import profiler as module
from ptxbench.profiler.ray.actor import Compiled, Reply
from ptxbench.profiler.ray.address import Address
from ptxbench.profiler.ray.devices import Member
from ptxbench.profiler.ray.profiler import MOVES, RayProfiler
from ptxbench.profiler.wire import Answer
from ptxbench.records import Candidate, InfrastructureFault
from ptxbench.toolchain import Built
from tests.unit.factories import GEMM, make_build, make_evidence, suite_case

exceptions = pytest.importorskip("ray.exceptions", reason="needs Ray: pip install 'ptxbench[ray]'")

CASE, CANDIDATE = suite_case(GEMM), Candidate(source="int x;")
GOOD = Reply(answer=Answer(evidence=make_evidence(CASE)))
HOT = Reply(answer=Answer(fault=InfrastructureFault(kind="device_quarantined", message="93 C")), notes=("it is hot",))


class Cluster:
    """Builds, and has ``outcomes`` for the next operations: replies, or errors of Ray's."""

    def __init__(self, *outcomes: Reply | Exception) -> None:
        self.outcomes = list(outcomes)
        self.compiled: list[str] = []
        self.killed: list[bool] = []
        self.has: dict[str, int] = {}
        self.ray = SimpleNamespace(get=self._get, kill=lambda actor, no_restart: self.killed.append(no_restart))

    def kinds(self) -> dict[str, int]:
        return self.has

    def compile(self, candidate: str, arch: str) -> tuple[Compiled, Any]:
        self.compiled.append(candidate)
        return Compiled(build=make_build(candidate_sha256=CANDIDATE.sha256)), object()

    def _get(self, answer: object, timeout: float) -> str:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.model_dump_json()


class Recorded:
    """Stands for ``Devices``: whoever asks gets an actor, and what is said of it is written down."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.another = True

    def has_another(self, member: Member) -> bool:
        return self.another

    def take(self, stopped: Callable[[], bool]) -> Member:
        self.log.append("take")
        actor = SimpleNamespace(perform=SimpleNamespace(remote=lambda *_: None))
        return Member(0, actor, node="host/1")

    def give_back(self, member: Member, health: object = None) -> None:
        self.log.append("back")

    def lost(self, member: Member, reason: str) -> None:
        self.log.append("lost")

    def distrust(self, member: Member, fault: InfrastructureFault) -> None:
        self.log.append("distrust")


def profiler(tmp_path, *outcomes: Reply | Exception) -> tuple[RayProfiler, Cluster, list[str]]:
    made, cluster, devices = RayProfiler(Address(), root=tmp_path), Cluster(*outcomes), Recorded()
    made.__dict__["_connected"] = cluster
    made._devices["gpu_sm90"] = devices  # type: ignore[assignment]
    return made, cluster, devices.log


def evaluate(asked: RayProfiler) -> object:
    return asked.evaluate(CASE, Built(make_build(candidate_sha256=CANDIDATE.sha256), None, CANDIDATE))


def test_what_a_quarantined_device_was_asked_is_asked_of_another(tmp_path):
    asked, cluster, log = profiler(tmp_path, HOT, GOOD)
    assert evaluate(asked) == GOOD.answer.evidence
    assert log == ["take", "distrust", "take", "back"]
    assert len(cluster.compiled) == 1
    notes = " ".join(asked.take_notes())
    assert "host/1: it is hot" in notes
    assert f"evaluate of {GEMM} is done again elsewhere: 93 C" in notes


def test_where_all_are_quarantined_that_is_the_fault(tmp_path):
    asked, _, log = profiler(tmp_path, HOT)
    with pytest.raises(InfrastructureError, match="93 C") as caught:
        evaluate(asked)
    assert caught.value.kind == "device_quarantined"
    assert log == ["take", "distrust"] * (MOVES + 1)


@pytest.mark.parametrize(
    ("kind", "another"), [("sandbox_failed", True), ("sandbox_failed", False), ("out_of_device_memory", True)]
)
def test_an_actor_that_fails_at_once_is_left_alone_where_there_is_another(tmp_path, kind, another):
    """It was busy last, so it would be the first to be asked again. What is too large for it is not its fault."""
    fault = InfrastructureFault(kind=kind, message="CUDA does not start")
    asked, _, log = profiler(tmp_path, Reply(answer=Answer(fault=fault)), GOOD)
    asked._devices["gpu_sm90"].another = another  # type: ignore[attr-defined]
    if another and kind == "sandbox_failed":
        assert evaluate(asked) == GOOD.answer.evidence
        assert log == ["take", "distrust", "take", "back"]
    else:
        with pytest.raises(InfrastructureError, match="CUDA does not start"):
            evaluate(asked)
        assert log == ["take", "back"]


def test_an_operation_that_takes_actors_down_ends_somewhere(tmp_path):
    asked, _, log = profiler(tmp_path, exceptions.ActorDiedError())
    with pytest.raises(InfrastructureError, match=f"begun {MOVES + 1} times, each time its actor was lost") as caught:
        evaluate(asked)
    assert caught.value.kind == "worker_died"
    assert log == ["take", "lost"] * (MOVES + 1)


def test_an_object_that_was_lost_is_built_again_and_the_actor_is_not_to_blame(tmp_path):
    asked, cluster, log = profiler(tmp_path, exceptions.ObjectLostError("0" * 56, b"", ""), GOOD)
    assert evaluate(asked) is not None
    assert log == ["take", "back", "take", "back"]
    assert len(cluster.compiled) == 2


def test_an_actor_that_does_not_answer_is_ended_and_comes_back(tmp_path):
    asked, cluster, log = profiler(tmp_path, exceptions.GetTimeoutError(), GOOD)
    assert evaluate(asked) is not None
    assert (log, cluster.killed) == (["take", "lost", "take", "back"], [False])


def test_what_cannot_be_built_keeps_no_actor(tmp_path, monkeypatch):
    asked, cluster, log = profiler(tmp_path, GOOD)
    monkeypatch.setattr(cluster, "compile", lambda candidate, arch: (Compiled(input_error="no such entry"), object()))
    with pytest.raises(InputError, match="no such entry"):
        evaluate(asked)
    assert log == ["take", "back"]


def test_a_kind_that_was_lost_is_waited_for_and_one_that_never_was_is_refused(tmp_path):
    asked, cluster, _ = profiler(tmp_path, GOOD)
    cluster.has = {}
    refusal = asked.refusal(CASE)
    assert refusal is not None
    assert "expected a node with the resource gpu_sm90, found none" in refusal
    cluster.has = {"gpu_sm90": 1}
    assert asked.refusal(CASE) is None
    cluster.has = {}
    assert asked.refusal(CASE) is None


def test_old_builds_are_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUILDS_KEPT", 2)
    asked, cluster, _ = profiler(tmp_path, GOOD)
    for number in (1, 2, 3, 3, 1):
        asked.build(Candidate(source=f"int x{number};"), CASE.arch)
    assert len(cluster.compiled) == 4
    assert len(asked._builds) == 2
