"""The teachers' prompts: what is filled in, and that no text changes without its version."""

import hashlib

import pytest

from ptxbench.adapt.texts import VERSION, digest, filled

NAMES = ("repair", "retrieval", "rationale_system", "rationale_fixit", "rationale_kernelgen", "rationale_again")
PINNED = ("2", "ba84fd6c14aef706")


def test_no_text_changes_without_its_version():
    """Raise VERSION with every change of a text, then pin what this test finds."""
    assert (VERSION, hashlib.sha256(digest(*NAMES).encode()).hexdigest()[:16]) == PINNED


def test_what_is_filled_in_is_taken_as_it_is():
    text = filled("rationale_fixit", task="$kernel", failed="a $ b", feedback="${x}", kernel="k")
    assert "$kernel" in text
    assert "a $ b" in text
    assert "${x}" in text


def test_a_field_that_is_missing_is_an_error():
    with pytest.raises(KeyError):
        filled("repair", turns=5)
