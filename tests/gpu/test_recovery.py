"""A candidate that destroys its process costs that process only."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.spares import SPARES
from ptxbench.profiler.worker import SANDBOX_PROGRAM
from ptxbench.records import Candidate, Evidence, RunStatus
from tests.fixtures.kernels import load
from tests.gpu.conftest import ROOT
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.protocol import SafetyTool
    from ptxbench.toolchain import Toolchain

START_LIMIT_MS = 500.0
LATENCY_SHARE = 0.01
EVALUATIONS = 3
"""Before and after. One latency against one other differs by the device's own drift: once by 1.04%."""


@pytest.fixture
def own_profiler() -> Iterator[LocalProfiler]:
    """A profiler whose processes this test may count."""
    profiler = LocalProfiler(root=ROOT)
    yield profiler
    profiler.close()


def sandboxes() -> list[int]:
    """Process ids of running sandboxes."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(SANDBOX_PROGRAM).encode() in words:
                found.append(int(folder.name))
    return found


def parent(pid: int) -> int | None:
    """Process id of the parent; None once the process is gone."""
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def own_sandboxes(others: set[int | None]) -> list[int]:
    """Sandboxes that no oracle of another test started. Those replace theirs whenever they are idle.

    Of one with keepers, the first process counts alone.
    """
    found = sandboxes()
    return [pid for pid in found if parent(pid) not in others | {None, *found}]


def latency_ns(evidences: list[Evidence]) -> float:
    """The median over evaluations of the median over trials of the median over calls."""
    runs = [[trial.timing for trial in evidence.run.trials if trial.timing] for evidence in evidences]
    return statistics.median(statistics.median(statistics.median(each.span_ns) for each in run) for run in runs)


def test_next_candidate_starts_at_once_and_reads_the_same(
    own_profiler: LocalProfiler, gemm: Case, toolchain: Toolchain, reference_gemm: str
) -> None:
    def evaluate(source: str) -> Evidence:
        evidence = own_profiler.evaluate(gemm, toolchain.build(Candidate(source=source), gemm.arch))
        assert evidence is not None
        return evidence

    others = {parent(pid) for pid in sandboxes()}
    evaluate(reference_gemm)
    before = [evaluate(reference_gemm) for _ in range(EVALUATIONS)]
    assert all(evidence.run.workload_state_cached for evidence in before)
    record: dict[str, Any] = {"device": before[0].device.model_dump(), "measured_at": before[0].measured_at}
    for fixture, status in (("illegal_address", RunStatus.RUNTIME_ERROR), ("endless", RunStatus.TIMEOUT)):
        assert evaluate(load(fixture)).run.status is status
        begin = time.perf_counter()
        after = [evaluate(reference_gemm)]
        wall_ms = (time.perf_counter() - begin) * 1e3
        after += [evaluate(reference_gemm) for _ in range(EVALUATIONS - 1)]
        assert all(evidence.run.status is RunStatus.COMPLETED for evidence in after)
        assert all(evidence.run.workload_state_cached for evidence in after)
        start_ms = after[0].run.stages_ms["sandbox"] + after[0].run.stages_ms["load"]
        share = abs(latency_ns(after) / latency_ns(before) - 1)
        record[fixture] = {
            "next_candidate_loaded_ms": round(start_ms, 2),
            "next_evaluation_ms": round(wall_ms, 1),
            "latency_change": round(share, 5),
        }
    expect_figures(record)
    assert len(own_sandboxes(others)) <= SPARES
    own_profiler.close()
    assert own_sandboxes(others) == []
    keep_figures("recovery.json", record)


def expect_figures(record: dict[str, Any]) -> None:
    """What is demanded of a run's figures, here and of stored ones."""
    for fixture in ("illegal_address", "endless"):
        assert record[fixture]["next_candidate_loaded_ms"] < START_LIMIT_MS
        assert record[fixture]["latency_change"] < LATENCY_SHARE


def test_workload_that_does_not_fit_is_named_and_the_oracle_lives_on(
    own_profiler: LocalProfiler, gemm: Case, toolchain: Toolchain, reference_gemm: str
) -> None:
    built = toolchain.build(Candidate(source=reference_gemm), gemm.arch)
    huge = gemm.workload.model_copy(update={"axes": {"M": 1 << 25}, "uuid": "too-large"})
    with pytest.raises(InfrastructureError, match=r"needs .* GiB of device memory") as caught:
        own_profiler.evaluate(gemm.model_copy(update={"workload": huge}), built)
    assert caught.value.kind == "out_of_device_memory"
    assert own_profiler.evaluate(gemm, built) is not None


def test_reference_that_fails_is_named(own_profiler: LocalProfiler, gemm: Case, toolchain: Toolchain) -> None:
    broken = gemm.definition.model_copy(update={"reference": "def run(A, B):\n    raise ValueError('no')\n"})
    case = gemm.shrunk().model_copy(update={"definition": broken})
    built = toolchain.build(Candidate(source=load("generic_gemm")), gemm.arch)
    with pytest.raises(InfrastructureError, match="gemm_n7168_k5120 failed: ValueError: no") as caught:
        own_profiler.evaluate(case, built)
    assert caught.value.kind == "reference_failed"


@pytest.mark.parametrize("tool", ["initcheck", "synccheck", "racecheck"])
def test_shrunk_axes_run_under_every_sanitizer(
    own_profiler: LocalProfiler, cases: dict[str, Case], toolchain: Toolchain, tool: SafetyTool
) -> None:
    # Attention, all of whose axes shrink: the GEMM's N and K are const, and initcheck takes minutes for it.
    case = cases["mha_with_lse_d128"]
    source = (ROOT / "generated/reference/h100/mha_with_lse_d128/kernel.cu").read_text()
    safety = own_profiler.sanitize(case, toolchain.build(Candidate(source=source), case.arch), tool)
    assert (safety.status.value, safety.findings) == ("ok", ()), safety.message
    assert safety.axes == case.shrunk().workload.axes
