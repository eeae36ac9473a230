"""Every fixture kernel, measured for real, gets exactly its outcome.

``PTXBENCH_EVIDENCE_DIR=DIR`` keeps the evidence; committed under ``tests/evidence/``, it is re-judged without a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.agent.evaluation import Evaluator
from ptxbench.models import Proposal
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, save_evidence
from ptxbench.records import Candidate
from tests.fixtures.kernels import Expected, expected, load

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler import Profiler
    from ptxbench.toolchain import Toolchain


@pytest.mark.parametrize(("name", "wanted"), list(expected().items()), ids=list(expected()))
def test_fixture_gets_its_outcome(
    name: str, wanted: Expected, gemm: Case, profiler: Profiler, toolchain: Toolchain
) -> None:
    candidate = Candidate(source=load(name))
    proposal = Proposal(origin=f"fixture {name}", candidate=candidate)
    found = Evaluator(lambda: toolchain, compile_slots=2).evaluate(gemm, proposal, profiler)
    record = os.environ.get("PTXBENCH_EVIDENCE_DIR")
    if record and found.evidence is not None:
        save_evidence(found.evidence, Path(record) / f"{name}{EVIDENCE_SUFFIX}")
    verdict = found.verdict
    assert (verdict.outcome, verdict.rule) == (wanted.outcome, wanted.rule), verdict.message
    assert verdict.target is wanted.target, verdict.target_message
    assert verdict.target_present is wanted.target_present
