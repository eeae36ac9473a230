"""What was measured of planted faults, judged by today's rules; and that the planted kernels are what they say."""

from __future__ import annotations

import pytest

from ptxbench.cases import load_suite
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, load_evidence
from ptxbench.records import SAFETY_TOOLS, Candidate, Safe
from ptxbench.verdict.safety import judge_safety
from tests.conftest import ROOT
from tests.fixtures.kernels import load as load_fixture
from tests.fixtures.safety import FOLDER, load, marked_lines, planted
from tests.unit.factories import suite_case

STORED = {
    path.name.removesuffix(EVIDENCE_SUFFIX): path
    for path in sorted((ROOT / "tests" / "evidence" / "safety").glob(f"*{EVIDENCE_SUFFIX}"))
}
OTHERS = ("reference_gemm", "right_use_after_free")
"""Evidence of ``tests/gpu/test_safety.py`` that is of no planted kernel."""


def source_of(name: str) -> str:
    if name == "reference_gemm":
        return (ROOT / "generated/reference/h100/gemm_n7168_k5120/kernel.cu").read_text()
    return load_fixture("use_after_free") if name == "right_use_after_free" else load(name)


def test_every_planted_kernel_has_its_file_and_every_tool_one() -> None:
    names = {path.stem for path in FOLDER.glob("*.cu")}
    assert names == set(planted())
    assert {wanted.tool for wanted in planted().values() if wanted.safe is Safe.NO} == set(SAFETY_TOOLS)


@pytest.mark.parametrize("name", list(planted()))
def test_a_planted_kernel_is_one_source_that_marks_its_fault(name: str) -> None:
    source, wanted = load(name), planted()[name]
    assert "planted.cuh" not in source
    assert bool(marked_lines(source)) is bool(wanted.kernel)
    assert f"void {wanted.kernel}(" in source or not wanted.kernel


@pytest.mark.parametrize("name", list(STORED))
def test_stored_evidence_is_of_a_kernel_that_is_there(name: str) -> None:
    assert name in (*planted(), *OTHERS)
    evidence = load_evidence(STORED[name])
    assert evidence.candidate_sha256 == Candidate(source=source_of(name)).sha256, "measure it again on a GPU"
    assert evidence.definition == suite_case().definition.name


@pytest.mark.parametrize("name", list(STORED))
def test_stored_evidence_gets_its_verdict(name: str) -> None:
    evidence = load_evidence(STORED[name])
    decision = judge_safety(evidence)
    if name == "reference_gemm":
        assert decision.safe is Safe.YES
        assert {decision.checks[tool].safe for tool in SAFETY_TOOLS} == {Safe.YES}
        return
    wanted = planted().get(name)
    tool = wanted.tool if wanted else "memcheck"
    safe = wanted.safe if wanted else Safe.NO
    assert (decision.safe, decision.checks[tool].safe) == (safe, safe)
    if wanted is None or wanted.kernel:
        findings = [finding for run in evidence.safety if run.tool == tool for finding in run.findings]
        assert findings
        assert all(finding.lines for finding in findings)
        assert f"at line {findings[0].lines[0]}" in decision.message


def test_the_paper_case_of_older_evidence_is_unsafe_too() -> None:
    evidence = load_evidence(ROOT / "tests/evidence/use_after_free.evidence.json")
    decision = judge_safety(evidence)
    assert (decision.safe, decision.checks["memcheck"].safe) == (Safe.NO, Safe.NO)
    assert "increment(int *)" in decision.message


@pytest.mark.parametrize("name", [case.name for case in load_suite(ROOT, "primary").cases("h100")])
def test_what_the_references_were_checked_by_is_said(name: str) -> None:
    path = next((ROOT / "generated" / "reference" / "h100" / name).glob(f"*{EVIDENCE_SUFFIX}"))
    decision = judge_safety(load_evidence(path))
    assert decision.safe is Safe.YES
    for tool in SAFETY_TOOLS:
        assert tool in decision.message
