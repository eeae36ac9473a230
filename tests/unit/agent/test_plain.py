"""Texts of others made fit for files and terminals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.plain import plain, storable
from ptxbench.records import FailedAttempt
from tests.unit.factories import make_record

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_can_be_stored_and_shown(text: str) -> None:
    found = plain(text)
    assert found.encode().decode() == found
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 0x9F for character in found)
    assert plain(found) == found


def test_controls_are_named_and_pairs_put_together() -> None:
    assert plain("a\x1b[31mred\n\tb\x00\x9b") == "a\\x1b[31mred\n\tb\\x00\\x9b"
    assert plain("\ud83d\ude00 \ud800") == "\U0001f600 \ufffd"


def test_a_record_keeps_everything_else() -> None:
    assert storable(make_record()) == make_record()
    attempt = FailedAttempt(kind="timeout", message="half \ud800", waited_s=1.5)
    assert storable(attempt) == attempt.model_copy(update={"message": "half \ufffd"})
