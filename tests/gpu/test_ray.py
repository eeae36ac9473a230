"""A Ray of this machine, with its one GPU: what it says is what the GPU says without it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import closing

import pytest

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.models import Proposal
from ptxbench.profiler import Profiler, open_profiler
from ptxbench.profiler.ray.resources import capabilities_here, counted
from ptxbench.records import Candidate, Outcome
from ptxbench.toolchain import Toolchain
from tests.fixtures.kernels import load
from tests.gpu.conftest import ROOT
from tests.unit.factories import GEMM, suite_case

pytest.importorskip("ray", reason="needs Ray: pip install 'ptxbench[ray]'")
pytestmark = pytest.mark.gpu

CASE = suite_case(GEMM)
REFERENCE = (ROOT / "generated" / "reference" / "h100" / GEMM / "kernel.cu").read_text()


def judged(profiler: Profiler, source: str) -> Evaluation:
    evaluator = Evaluator(Toolchain.discover, compile_slots=2)
    return evaluator.evaluate(CASE, Proposal(candidate=Candidate(source=source), origin="test"), profiler)


@pytest.fixture(scope="module")
def alone() -> Evaluation:
    """Without Ray. Its oracle has ended before Ray's starts."""
    with closing(open_profiler("local", root=ROOT, evidence_roots=())) as profiler:
        judged(profiler, REFERENCE)
        return judged(profiler, REFERENCE)


@pytest.fixture(scope="module")
def cluster(alone: Evaluation) -> Iterator[Profiler]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")
        patch.setenv("PYTHONPATH", str(ROOT / "plugins"))
        with closing(open_profiler("ray", root=ROOT, evidence_roots=())) as profiler:
            yield profiler


def latency(evaluation: Evaluation) -> float:
    assert evaluation.verdict.speedup is not None
    return evaluation.verdict.speedup


def test_reference_has_the_verdict_that_it_has_without_ray(alone: Evaluation, cluster: Profiler) -> None:
    judged(cluster, REFERENCE)
    found = [judged(cluster, REFERENCE) for _ in range(3)]
    for one in found:
        assert one.origin == "measured"
        assert one.build == alone.build
        assert one.verdict.outcome is alone.verdict.outcome is Outcome.CORRECT
        assert (one.verdict.target, one.verdict.safe) == (alone.verdict.target, alone.verdict.safe)
        assert one.evidence is not None
        assert alone.evidence is not None
        assert one.evidence.device == alone.evidence.device
    assert statistics.median(map(latency, found)) == pytest.approx(latency(alone), rel=0.03)


def test_wrong_kernels_are_wrong_and_cost_the_actor_nothing(cluster: Profiler) -> None:
    assert judged(cluster, load("oob_write")).verdict.outcome is Outcome.MEMORY_ERROR
    assert judged(cluster, load("wrong_result")).verdict.outcome is Outcome.NUMERICAL_ERROR
    assert judged(cluster, REFERENCE).verdict.outcome is Outcome.CORRECT


def test_health_has_every_gpu_by_its_kind(cluster: Profiler) -> None:
    health = cluster.health()
    assert health.device is not None
    assert health.kind == "ray (local)"
    assert len(health.devices) == sum(counted(capabilities_here()).values())
    assert all(device.name.startswith("gpu_sm90 of ") for device in health.devices)


def test_a_case_of_another_architecture_is_not_measured(cluster: Profiler) -> None:
    refusal = cluster.refusal(suite_case(GEMM, "b200"))  # type: ignore[attr-defined]
    assert refusal is not None
    assert "expected a node with the resource gpu_sm100" in refusal
