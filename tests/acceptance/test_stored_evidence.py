"""What was measured on a GPU, judged again by today's rules on the device code that today's toolchain builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.cases import Case, load_suite
from ptxbench.models import Proposal
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Candidate, Outcome, Safe, Target
from ptxbench.toolchain import Toolchain
from tests.conftest import ROOT
from tests.fixtures.kernels import Expected, expected, load

REFERENCES = ROOT / "generated" / "reference"
FIXTURES = ROOT / "tests" / "evidence"
CASES = {case.name: case for case in load_suite(ROOT, "primary").cases("h100")}
FLOORS = {"gemm": 0.6, "mha_with": 0.3, "mha_bwd": 0.15}
"""What the first reference solutions had to reach, by definition name."""


@pytest.fixture(scope="module")
def evaluator(build_cache: Path) -> Evaluator:
    return Evaluator(lambda: Toolchain.discover(cache_dir=build_cache), compile_slots=2)


def judge_stored(evaluator: Evaluator, case: Case, source: str, root: Path) -> Evaluation:
    proposal = Proposal(candidate=Candidate(source=source), origin="test")
    return evaluator.evaluate(case, proposal, ReplayProfiler([root]))


@pytest.mark.parametrize("name", sorted(CASES))
def test_reference_is_correct_and_executes_the_target(name: str, evaluator: Evaluator) -> None:
    source = (REFERENCES / "h100" / name / "kernel.cu").read_text()
    verdict = judge_stored(evaluator, CASES[name], source, REFERENCES).verdict
    assert verdict.outcome is Outcome.CORRECT, verdict.message
    assert verdict.target is Target.EXECUTED, verdict.target_message
    assert verdict.safe is Safe.YES
    assert verdict.useful_share is not None
    assert verdict.useful_share >= 1.0
    floor = next(floor for prefix, floor in FLOORS.items() if name.startswith(prefix))
    assert verdict.speedup is not None
    assert verdict.speedup > floor
    assert verdict.flags == ()


@pytest.mark.parametrize(("name", "wanted"), list(expected().items()), ids=list(expected()))
def test_fixture_gets_its_outcome(name: str, wanted: Expected, evaluator: Evaluator) -> None:
    found = judge_stored(evaluator, CASES["gemm_n7168_k5120"], load(name), FIXTURES)
    assert (found.evidence is not None) is wanted.needs_gpu
    verdict = found.verdict
    assert (verdict.outcome, verdict.rule) == (wanted.outcome, wanted.rule), verdict.message
    assert verdict.target is wanted.target, verdict.target_message
    assert verdict.target_present is wanted.target_present


def test_an_edited_kernel_has_no_evidence(evaluator: Evaluator) -> None:
    source = (REFERENCES / "h100/gemm_n7168_k5120/kernel.cu").read_text()
    edited = source + "\n// an edit that changes nothing in the device code\n"
    verdict = judge_stored(evaluator, CASES["gemm_n7168_k5120"], edited, REFERENCES).verdict
    assert (verdict.outcome, verdict.rule) == (Outcome.UNKNOWN, "evidence.none")
