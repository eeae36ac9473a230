"""The sandbox's layers on a real device: which of them CUDA works inside of, and that measuring is the same there.

``PTXBENCH_EVIDENCE_DIR=DIR`` keeps what was found as ``DIR/containment.json``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.profiler.containment import OPTIONAL, choose, describe_here, wanted
from ptxbench.profiler.containment_probe import probe
from ptxbench.profiler.local import LocalProfiler
from ptxbench.records import Candidate, Evidence, RunStatus
from tests.fixtures.kernels import load
from tests.gpu.conftest import ROOT
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.toolchain import Toolchain

LATENCY_SHARE = 0.01
EVALUATIONS = 3


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {"kernel": describe_here().model_dump()}
    yield found
    print(json.dumps(found, indent=1))  # noqa: T201 - shown with -s
    keep_figures("containment.json", found)


def latency_ns(evidences: list[Evidence]) -> float:
    runs = [[trial.timing for trial in evidence.run.trials if trial.timing] for evidence in evidences]
    return statistics.median(statistics.median(statistics.median(each.span_ns) for each in run) for run in runs)


@pytest.mark.parametrize("layer", OPTIONAL)
def test_the_device_works_inside_of_each_layer(layer: str, record: dict[str, Any]) -> None:
    """A layer that fails here is dropped by the choice; this names it and says how it fails."""
    needed = {"proc": ("mount", "pid"), "uid": ("mount",), "processes": ("mount", "uid")}.get(layer, ())
    fault = probe((*needed, layer))
    record.setdefault("each", {})[layer] = fault
    if fault:
        pytest.xfail(f"CUDA does not work inside of {layer}: {fault}")


def test_a_set_is_chosen_and_holds_seccomp(record: dict[str, Any]) -> None:
    choice = choose(probe, wanted())
    record["choice"] = choice.model_dump()
    assert probe(choice.layers) == ""
    assert "seccomp" in choice.layers
    assert set(choice.layers) | set(choice.dropped) == set(OPTIONAL)


def test_the_reference_is_measured_the_same_with_and_without(
    gemm: Case, toolchain: Toolchain, reference_gemm: str, record: dict[str, Any]
) -> None:
    built = toolchain.build(Candidate(source=reference_gemm), gemm.arch)
    latencies = {}
    for name, without in (("with", ()), ("without", ("containment",))):
        profiler = LocalProfiler(root=ROOT, without=without)
        try:
            profiler.evaluate(gemm, built)
            found = [profiler.evaluate(gemm, built) for _ in range(EVALUATIONS)]
        finally:
            profiler.close()
        evidences = [evidence for evidence in found if evidence is not None]
        assert {evidence.run.status for evidence in evidences} == {RunStatus.COMPLETED}
        containment = evidences[0].run.containment
        assert containment is not None
        record[name] = {"latency_ns": latency_ns(evidences), "containment": containment.model_dump()}
        assert ("seccomp" in containment.active) == (name == "with")
        latencies[name] = latency_ns(evidences)
    record["latency_change"] = round(latencies["with"] / latencies["without"] - 1, 5)
    assert abs(record["latency_change"]) < LATENCY_SHARE


def test_tools_work_over_their_own_smaller_set(
    profiler: LocalProfiler, gemm: Case, toolchain: Toolchain, reference_gemm: str
) -> None:
    counts = profiler.instructions(gemm, toolchain.build(Candidate(source=reference_gemm), gemm.arch))
    assert counts.status.value == "ok", counts.message
    safety = profiler.sanitize(gemm, toolchain.build(Candidate(source=load("oob_write")), gemm.arch), "memcheck")
    assert safety.findings, safety.message
