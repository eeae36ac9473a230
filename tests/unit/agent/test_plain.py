"""Texts of others made fit for files."""

from __future__ import annotations

from ptxbench.agent.plain import storable
from ptxbench.records import FailedAttempt
from tests.unit.factories import make_record


def test_a_record_keeps_everything_else() -> None:
    assert storable(make_record()) == make_record()
    attempt = FailedAttempt(kind="timeout", message="half \ud800", waited_s=1.5)
    assert storable(attempt) == attempt.model_copy(update={"message": "half \ufffd"})
