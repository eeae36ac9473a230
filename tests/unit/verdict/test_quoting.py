import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.verdict.quoting import MAX_QUOTE_CHARS, first_error, quote


@given(st.text())
def test_a_quote_is_one_short_printable_line(text: str) -> None:
    quoted = quote(text)
    assert len(quoted) <= MAX_QUOTE_CHARS
    assert quoted == "" or quoted.isprintable()
    assert quote(quoted) == quoted


def test_long_text_says_that_it_was_cut() -> None:
    assert quote("x" * 301) == "x" * 297 + "..."
    assert quote("x" * 300) == "x" * 300


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("note: a\n k.cu(1): error: b\n", "k.cu(1): error: b"),
        ("ptxas fatal : Unresolved\n\n", "ptxas fatal : Unresolved"),
        ("", "(no output)"),
    ],
)
def test_first_error(log: str, line: str) -> None:
    assert first_error(log) == line
