from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.verdict import judge
from ptxbench.verdict.useful_work import useful_share, warp_flops
from tests.unit.factories import HGMMA, make_build, make_counts, make_evidence, make_instructions, suite_case

M, N, K = 8192, 7168, 5120
TILES = (M // 64) * (N // 256) * (K // 16)
"""HGMMA.64x256x16 instructions of a warpgroup that compute the GEMM once."""
ALL_THREADS = TILES * 4 * 32


def share(*counts: Any) -> float | None:
    return useful_share(suite_case(), counts)


def test_a_gemm_computed_once_by_wgmma_has_share_one() -> None:
    assert share(make_counts(HGMMA, ALL_THREADS)) == 1.0


def test_shapes_and_instructions_add_up() -> None:
    half = make_counts(HGMMA, ALL_THREADS // 2)
    other_half = make_counts("HGMMA.64x64x16.F32.BF16", ALL_THREADS * 2)
    assert share(half, other_half, make_counts("FFMA", 10**9), make_counts("UTMALDG.2D", 10**6)) == 1.0


def test_a_token_instruction_has_next_to_none() -> None:
    token = share(make_counts(HGMMA, 128))
    assert token is not None
    assert 0 < token < 1e-5


def test_matrix_instructions_of_older_architectures_are_not_the_targets() -> None:
    assert share(make_counts("HMMA.16816.F32.BF16", 10**9)) == 0.0
    assert share() == 0.0


def test_predicated_off_is_no_work() -> None:
    assert share(make_counts(HGMMA, 0)) == 0.0
    half = make_counts(HGMMA, ALL_THREADS // 2).model_copy(update={"inst_executed": ALL_THREADS // 32})
    assert share(half) == 0.5


@pytest.mark.parametrize("opcode", ["HGMMA", "HGMMA.SP.64x64x32.F32", "HGMMA.64x64x32.F32.SP", "HGMMA.16x64x16"])
def test_one_uncountable_instruction_makes_the_share_unknown(opcode: str) -> None:
    assert share(make_counts(HGMMA, 128), make_counts(opcode, 128)) is None
    assert share(make_counts(HGMMA, ALL_THREADS), make_counts(opcode, 0)) == 1.0


def test_blackwell_is_not_countable() -> None:
    assert useful_share(suite_case(arch="b200"), [make_counts("UTCHMMA", 128)]) is None


@given(st.integers(1, 32).map(lambda n: 8 * n), st.sampled_from([8, 16, 32, 256]), st.sampled_from("HQIB"))
def test_work_of_a_warp_is_a_quarter_of_the_warpgroups(n: int, k: int, kind: str) -> None:
    assert warp_flops(f"{kind}GMMA.64x{n}x{k}.F32.BF16.gdesc") == 2 * 16 * n * k


@given(st.text(max_size=30))
def test_no_text_breaks_the_parser(opcode: str) -> None:
    assert warp_flops(opcode) is None or "GMMA" in opcode


def test_the_verdict_carries_it_only_where_the_counts_are_trusted() -> None:
    counts = make_counts(HGMMA, ALL_THREADS)
    good = make_evidence(instructions=make_instructions(counts))
    assert judge(suite_case(), make_build(), good).useful_share == 1.0
    odd = make_evidence(instructions=make_instructions(counts, outputs_match=False))
    assert judge(suite_case(), make_build(), odd).useful_share is None
    assert judge(suite_case(), make_build({"FFMA": 1}), good).useful_share is None
