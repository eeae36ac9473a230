"""Names, numbers and quotations; nothing of the machine in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.feedback.parts import ITEM_CHARS, bullets
from ptxbench.agent.feedback.wording import (
    MAX_QUOTED,
    count,
    excerpt,
    lines_with,
    listed,
    numbers,
    percent,
    safe,
    short_name,
    source_line,
)

SOURCE = "first\n\tsecond // third\n\nfourth"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("_Z14write_past_endP13__nv_bfloat16i", "write_past_end"),
        ("_ZN32_GLOBAL__N__ptxbench_9_kernel_cu11gemm_kernelE14CUtensorMap_stS0_i", "gemm_kernel"),
        ("_Z4gemmILi128ELb1EEvPf", "gemm"),
        ("void ns::gemm<(int)4, float>(float *, int)", "gemm"),
        ("(anonymous namespace)::k(const float *)", "k"),
        ("write_past_end(__nv_bfloat16 *, int)", "write_past_end"),
        ("plain", "plain"),
        ("_Z", "kernel"),
        ("", "kernel"),
        ("()", "kernel"),
    ],
)
def test_kernels_have_their_own_names(kernel: str, name: str) -> None:
    assert short_name(kernel) == name


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cannot open /home/me/x/kernel.so: no", "cannot open kernel.so: no"),
        ("in /home/me today", "in <path> today"),
        ("at 0x7f4e3d000000 of 0x10", "at <address> of 0x10"),
        ("a/b and 3 / 4 // x", "a/b and 3 / 4 // x"),
        ("two\nlines\x1b[31m", "two lines [31m"),
    ],
)
def test_paths_and_addresses_do_not_pass(said: str, kept: str) -> None:
    assert safe(said) == kept


@given(st.text(max_size=1000))
def test_a_quotation_is_one_bounded_line(text: str) -> None:
    quoted = safe(text)
    assert len(quoted) <= MAX_QUOTED
    assert "\n" not in quoted


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (1.0, "100%"), (0.5, "50.0%"), (1e-5, "0.001%"), (0.99999, "more than 99.9%"), (0.942, "94.2%")],
)
def test_shares_never_claim_all_or_none_wrongly(share: float, text: str) -> None:
    assert percent(share) == text


def test_counts_and_lists() -> None:
    assert (count(1, "finding"), count(1200, "finding")) == ("1 finding", "1,200 findings")
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcdef", 2) == "a, b and 4 more"
    assert (numbers([3]), numbers([3, 9])) == ("line 3", "lines 3, 9")


def test_lines_are_quoted_with_their_numbers() -> None:
    assert source_line(SOURCE, 2) == "    2 |     second // third"
    assert source_line(SOURCE, 3) == "    3 |"
    assert source_line(SOURCE, 0) == source_line(SOURCE, 5) == ""
    assert excerpt(SOURCE, 1, 1) == ">    1 | first\n     2 |     second // third"
    assert len(source_line("x" * 1000, 1)) < 200


def test_comments_of_a_line_are_not_searched() -> None:
    assert lines_with(SOURCE, "second") == [2]
    assert lines_with(SOURCE, "third") == []


@given(st.lists(st.text(max_size=3 * ITEM_CHARS), max_size=12), st.integers(100, 4000))
def test_a_list_is_bounded_and_says_what_it_leaves_out(items: list[str], limit: int) -> None:
    text = bullets(items, limit)
    assert len(text) <= limit
    if items and not text.startswith("- ("):
        assert text.startswith("- ")
