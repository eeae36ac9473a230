"""Errors of clients, as users and files see them."""

import pytest

from ptxbench.models.client import ModelError


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("bad \ud800 thing", "bad \ufffd thing"),
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("a\r\nb\tc", "a  b c"),
        ("a\x00b\x9bc\x7f", "a\ufffdb\ufffdc\ufffd"),
        ("turned \u202egnuor\u202c", "turned \ufffdgnuor\ufffd"),
        ("Ünïcode \U0001f600 …", "Ünïcode \U0001f600 …"),
    ],
)
def test_a_message_holds_only_what_can_be_shown_and_stored(message, shown):
    error = ModelError("bad_request", message, 2.0)
    assert (str(error), error.kind, error.retry_after_s) == (shown, "bad_request", 2.0)
