"""Kernels that take scalars and index inputs, on the whole road. Apart from tests that hold the device themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.agent.evaluation import Evaluator
from ptxbench.cases import find_root, load_suite
from ptxbench.models import Proposal
from ptxbench.records import Candidate, Outcome

if TYPE_CHECKING:
    from ptxbench.profiler import Profiler
    from ptxbench.toolchain import Toolchain

HERE = Path(__file__).parent
DECODE = "gqa_paged_decode_h24_kv8_d128_ps1"
SOURCE = (HERE / "kernels" / "gqa_paged_decode.cu").read_text()


def test_an_honest_kernel_is_correct_on_every_family(profiler: Profiler, toolchain: Toolchain) -> None:
    """Fresh pages in every iteration; other lengths behind the same pointers."""
    case = load_suite(find_root(HERE), "all").case(DECODE, "h100")
    proposal = Proposal(origin="test", candidate=Candidate(source=SOURCE))
    found = Evaluator(lambda: toolchain, compile_slots=2).evaluate(case, proposal, profiler)
    assert found.verdict.outcome is Outcome.CORRECT, found.verdict.message
    assert found.evidence is not None
    assert [check.family for check in found.evidence.run.families] == ["shifted", "spiky", "structure"]
    assert not {"family_mismatch", "family_unqualified", "low_precision"} & set(found.verdict.flags)
    assert found.verdict.speedup is not None


def test_a_kernel_with_a_natural_lse_is_wrong(profiler: Profiler, toolchain: Toolchain) -> None:
    case = load_suite(find_root(HERE), "all").case(DECODE, "h100")
    natural = SOURCE.replace(" * 1.4426950408889634f", "")
    assert natural != SOURCE
    proposal = Proposal(origin="test", candidate=Candidate(source=natural))
    found = Evaluator(lambda: toolchain, compile_slots=2).evaluate(case, proposal, profiler)
    assert found.verdict.outcome is Outcome.NUMERICAL_ERROR
    assert "output lse" in found.verdict.message


def test_a_kernel_that_keeps_its_first_lengths_does_not_score(profiler: Profiler, toolchain: Toolchain) -> None:
    """Offsets are the same in every timed call, so only the family with other lengths tells."""
    case = load_suite(find_root(HERE), "all").case(DECODE, "h100")
    keeping = SOURCE.replace(
        "  decode<<<",
        "  static int* kept = nullptr;\n"
        "  if (kept == nullptr) {\n"
        "    cudaMalloc(reinterpret_cast<void**>(&kept), 64);\n"
        "    cudaMemcpyAsync(kept, kv_indptr.data_ptr(), 64, cudaMemcpyDeviceToDevice, stream);\n"
        "  }\n"
        "  decode<<<",
    ).replace("static_cast<const int*>(kv_indptr.data_ptr())", "kept")
    assert keeping.count("kept") >= 4
    proposal = Proposal(origin="test", candidate=Candidate(source=keeping))
    found = Evaluator(lambda: toolchain, compile_slots=2).evaluate(case, proposal, profiler)
    assert found.verdict.outcome is Outcome.CORRECT, found.verdict.message
    assert "family_mismatch" in found.verdict.flags
    assert found.verdict.speedup is None
