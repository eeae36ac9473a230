"""Texts of others made fit for terminals, pages and files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.plain import plain, visible

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_can_be_stored_and_shown(text: str) -> None:
    found = plain(text)
    assert found.encode().decode() == found
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 0x9F for character in found)
    assert plain(found) == found


@given(ANY_TEXT)
def test_any_text_can_be_one_line(text: str) -> None:
    found = visible(text)
    assert len(found.splitlines()) <= 1
    assert found.encode().decode() == found
    assert visible(found) == found


def test_controls_are_named_and_pairs_put_together() -> None:
    assert plain("a\x1b[31mred\n\tb\x00\x9b") == "a\\u001b[31mred\n\tb\\u0000\\u009b"
    assert plain("\ud83d\ude00 \ud800") == "\U0001f600 \ufffd"


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("a\u202eb", "a\\u202eb"),
        ("a\tb", "a\\u0009b"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("größe ✓", "größe ✓"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(given_text: str, expected: str) -> None:
    assert visible(given_text) == expected
