"""The same inputs, the same verdicts, over every transport.

What the verdicts must be is what stored evidence says when it is judged in this process. Whoever replays must say
exactly that. Whoever measures must agree in everything but numbers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.models import Proposal
from ptxbench.profiler import Profiler
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Candidate, ToolStatus, Verdict
from ptxbench.toolchain import Toolchain
from tests.conformance.transports import EVIDENCE, TRANSPORTS, Place, parameters
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.support.figures import keep_figures
from tests.unit.factories import GEMM, suite_case

KERNELS = ("reference", "wrong_result", "oob_read", "decoy_predicated", "endless", "cublas_include", "compile_error")
"""Every way that an evaluation can take: right, wrong, unsafe, a decoy, without an end, refused, not built."""
CASE = suite_case(GEMM)
FIXED = {"outcome", "rule", "target", "target_rule", "target_present", "safe"}
"""What two measurements of one kernel agree on."""
SAID: dict[str, object] = {}
"""Kernel -> what the transport under test said of it, in those fields."""


@pytest.fixture(scope="module", params=parameters())
def profiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, build_cache: Path):
    place = Place(tmp_path_factory.mktemp("transport"), build_cache)
    SAID.clear()
    with TRANSPORTS[request.param](place) as opened:
        yield opened
        if opened.origin == "measured":
            keep_figures(f"conformance_{request.param}.json", {"verdicts": dict(SAID)})


@pytest.fixture(scope="module")
def evaluator(build_cache: Path) -> Evaluator:
    return Evaluator(lambda: Toolchain.discover(cache_dir=build_cache), compile_slots=2)


@cache
def source(name: str) -> str:
    folder = ROOT / "generated" / "reference" / "h100" / GEMM
    return (folder / "kernel.cu").read_text() if name == "reference" else load(name)


def evaluated(evaluator: Evaluator, profiler: Profiler, name: str) -> Evaluation:
    return evaluator.evaluate(CASE, Proposal(candidate=Candidate(source=source(name)), origin="test"), profiler)


def agreed(profiler: Profiler, verdict: Verdict) -> object:
    """The part of a verdict that must be the same."""
    whole = profiler.origin == "replayed"
    return verdict if whole else {field: getattr(verdict, field) for field in FIXED}


@pytest.mark.parametrize("name", KERNELS)
def test_same_kernel_gets_the_same_verdict(profiler: Profiler, evaluator: Evaluator, name: str) -> None:
    wanted = evaluated(evaluator, ReplayProfiler(EVIDENCE), name)
    found = evaluated(evaluator, profiler, name)
    verdict = found.verdict.model_dump(mode="json", include=FIXED)
    SAID[name] = {"source_sha256": sha256(source(name).encode()).hexdigest(), **verdict}
    assert agreed(profiler, found.verdict) == agreed(profiler, wanted.verdict)
    assert found.build == wanted.build
    if profiler.origin == "replayed":
        assert found.evidence == wanted.evidence


def test_kernel_that_nobody_measured_is_unknown_or_measured_now(profiler: Profiler, evaluator: Evaluator) -> None:
    edited = Candidate(source=source("wrong_result") + "\n// edited")
    found = evaluator.evaluate(CASE, Proposal(candidate=edited, origin="test"), profiler)
    assert found.verdict.outcome.value == ("unknown" if profiler.origin == "replayed" else "numerical_error")
    assert (found.evidence is None) == (profiler.origin == "replayed")


def test_operations_answer_by_themselves(profiler: Profiler, evaluator: Evaluator) -> None:
    built = evaluator.build(Candidate(source=source("reference")), CASE)
    counts = profiler.instructions(CASE, built)
    assert counts.status is ToolStatus.OK, counts.message
    assert any(row.opcode.startswith("HGMMA") and row.thread_inst_executed_true for row in counts.counts)
    safety = profiler.sanitize(CASE, built, "memcheck")
    assert (safety.tool, safety.status, safety.finding_count) == ("memcheck", ToolStatus.OK, 0)


def test_many_threads_get_the_answers_of_one(profiler: Profiler, evaluator: Evaluator) -> None:
    names = ("reference", "wrong_result", "oob_read") * 2
    with ThreadPoolExecutor(len(names)) as pool:
        found = list(pool.map(lambda name: evaluated(evaluator, profiler, name).verdict, names))
    for name, verdict in zip(names, found, strict=True):
        wanted = evaluated(evaluator, ReplayProfiler(EVIDENCE), name).verdict
        assert agreed(profiler, verdict) == agreed(profiler, wanted), name


def test_health_names_what_is_behind_it(profiler: Profiler) -> None:
    health = profiler.health()
    assert health.kind
    assert (health.device is not None) == (profiler.origin == "measured")
