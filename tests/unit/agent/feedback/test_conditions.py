"""What a feedback says of code that was loaded at run time, and of measurements that were disturbed."""

from __future__ import annotations

from typing import Any

from ptxbench.agent.feedback import feedback
from ptxbench.agent.feedback.correct import _FLAGS
from ptxbench.models import PastTurn
from ptxbench.records import Disturbance, DisturbanceKind, LoadedCode, LoadedLibrary
from ptxbench.verdict import Flag
from tests.unit.factories import make_evidence, make_record, make_run, suite_case


def said(**run: Any) -> str:
    record = make_record(evidence=make_evidence(run=make_run(**run)))
    return feedback(suite_case(), PastTurn(record, "x"), turns_left=3, toolchain=None)


def test_every_flag_is_explained() -> None:
    assert set(_FLAGS) == set(Flag)


def test_what_was_loaded_is_named() -> None:
    text = said(loaded=LoadedCode(libraries=(LoadedLibrary(path="/opt/libcublas.so.13", allowed=False),)))
    assert "it uses something that is not allowed" in text
    assert "While it ran, it loaded code at run time from 1 file: libcublas.so.13." in text


def test_a_disturbance_is_nobody_s_fault() -> None:
    found = Disturbance(kind=DisturbanceKind.ECC, message="2 new uncorrectable memory errors", when="during")
    assert "Flag disturbed: something outside of your kernel" in said(disturbances=(found,))
