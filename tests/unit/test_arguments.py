"""Numbers on command lines, and the option that names collections."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.arguments import add_trace_sets, count, positive


@given(st.integers(1, 10**12 - 1))
def test_a_count_is_read(number: int) -> None:
    assert count(str(number)) == number


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", " 1", "one", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_what_is_no_count_is_refused_in_short(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number of at least 1 in at most") as caught:
        count(text)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("2", 2.0), ("1e3", 1000.0)])
def test_a_positive_number_is_read(text: str, value: float) -> None:
    assert positive(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "x" * 5000])
def test_what_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number above 0, found"):
        positive(text)


def test_collections_add_up_and_are_none_at_first() -> None:
    parser = argparse.ArgumentParser()
    add_trace_sets(parser)
    assert parser.parse_args([]).trace_sets == []
    assert parser.parse_args(["--trace-set", "a", "--trace-set", "b"]).trace_sets == [Path("a"), Path("b")]
