"""Each planted fault is found by the tool that is for it, in its kernel and at its line; honest kernels are safe.

``PTXBENCH_EVIDENCE_DIR=DIR`` keeps the evidence as ``DIR/NAME.evidence.json``; committed under
``tests/evidence/safety/`` it is re-judged without a GPU (``tests/unit/verdict/test_safety_evidence.py``).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.models import Proposal
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, save_evidence
from ptxbench.profiler.safety_cache import SafetyCache
from ptxbench.profiler.tools import find_tool
from ptxbench.records import SAFETY_TOOLS, Candidate, Safe, ToolStatus
from tests.fixtures.kernels import load as load_fixture
from tests.fixtures.safety import Planted, load, marked_lines, planted

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

pytestmark = pytest.mark.skipif(find_tool("compute-sanitizer") is None, reason="needs compute-sanitizer")

REFERENCE = "reference_gemm"


def checked(name: str, source: str, case: Case, profiler: LocalProfiler, toolchain: Toolchain) -> Evaluation:
    """Evaluate under all four tools, and keep the evidence where that is asked for."""
    evaluator = Evaluator(lambda: toolchain, compile_slots=2, safety="full")
    found = evaluator.evaluate(case, Proposal(origin=name, candidate=Candidate(source=source)), profiler)
    assert found.evidence is not None
    folder = os.environ.get("PTXBENCH_EVIDENCE_DIR")
    if folder:
        save_evidence(found.evidence, Path(folder) / f"{name}{EVIDENCE_SUFFIX}")
    return found


@pytest.mark.parametrize(("name", "wanted"), list(planted().items()), ids=list(planted()))
def test_a_planted_fault_is_found_where_it_is(
    name: str, wanted: Planted, gemm: Case, profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    source = load(name)
    found = checked(name, source, gemm, profiler, toolchain)
    assert found.evidence is not None
    told = {safety.tool: (safety.status.value, safety.message, safety.kept) for safety in found.evidence.safety}
    check = found.verdict.safety[wanted.tool]
    assert check.safe is wanted.safe, (check.message, told)
    others = {tool: found.verdict.safety[tool].safe for tool in SAFETY_TOOLS if tool != wanted.tool}
    assert set(others.values()) <= {Safe.YES, Safe.NOT_RUN}, (found.verdict.safety, told)
    assert found.verdict.safe is wanted.safe, found.verdict.safe_message
    (evidence,) = [safety for safety in found.evidence.safety if safety.tool == wanted.tool]
    if wanted.kernel:
        assert evidence.findings, told
        assert wanted.kernel in evidence.findings[0].kernel
        lines = {line for finding in evidence.findings for line in finding.lines[:1]}
        assert lines
        assert lines <= set(marked_lines(source)), evidence.findings


def test_the_reference_is_safe_by_all_four_tools(
    gemm: Case, profiler: LocalProfiler, toolchain: Toolchain, reference_gemm: str
) -> None:
    found = checked(REFERENCE, reference_gemm, gemm, profiler, toolchain)
    assert found.evidence is not None
    times = {safety.tool: safety.wall_ms for safety in found.evidence.safety}
    assert {name: check.safe for name, check in found.verdict.safety.items()} == dict.fromkeys(
        ("guards", *SAFETY_TOOLS), Safe.YES
    ), (found.verdict.safety, times)
    assert (found.verdict.correct, found.verdict.safe) == (True, Safe.YES)
    assert all(safety.outputs_match for safety in found.evidence.safety)


def test_a_right_result_with_a_use_after_free_is_unsafe_with_its_line(
    gemm: Case, profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    """The case of the paper: a plain run is right and quiet, and the buffer's life had ended in stream order."""
    source = load_fixture("use_after_free")
    found = checked("right_use_after_free", source, gemm, profiler, toolchain)
    assert found.evidence is not None
    assert found.verdict.safe is Safe.NO
    finding = found.evidence.safety[0].findings[0]
    assert "increment" in finding.kernel
    assert "*counter += 1" in source.splitlines()[finding.lines[0] - 1]


def test_what_was_checked_before_is_not_checked_again(
    gemm: Case,
    profiler: LocalProfiler,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiler, "_safety_cache", SafetyCache(tmp_path))
    built = toolchain.build(Candidate(source=load("race")), gemm.arch)
    first = profiler.sanitize(gemm, built, "racecheck")
    assert (first.status, first.checked_before) == (ToolStatus.OK, "")
    begun = time.monotonic()
    again = profiler.sanitize(gemm, built, "racecheck")
    assert time.monotonic() - begun < 0.5
    assert again.checked_before
    assert again.findings == first.findings
    commented = toolchain.build(Candidate(source=load("kept_scratch")), gemm.arch)
    assert profiler.sanitize(gemm, commented, "racecheck").checked_before == ""
