"""Texts of others made fit for files and terminals."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.plain import plain, storable
from ptxbench.records import FailedAttempt
from ptxbench.records.texts import placeless
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


def test_paths_of_this_machine_lose_their_folders(tmp_path: Path) -> None:
    assert placeless(f"[Errno 2] No such file or directory: '{tmp_path}/a b.txt'") == (
        "[Errno 2] No such file or directory: 'a b.txt'"
    )
    assert placeless(f"{tmp_path}/turn0.json: expected, ({tmp_path}/x/)") == "turn0.json: expected, (x)"


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:80/v1/models", "404 for /v1/chat/completions", "16/32 and/or/not", "see ./tmp/x", "/tmp"]
)
def test_what_is_no_path_of_it_stays(text: str) -> None:
    assert placeless(text) == text
