"""What ``--without`` asks for, and what stores answer."""

from __future__ import annotations

import pytest

from ptxbench.errors import InputError
from ptxbench.profiler.defences import DEFENCES
from ptxbench.selftest import switching
from ptxbench.selftest.kept import Store
from ptxbench.selftest.subjects import Subject


def test_names_are_switched_off_together_and_all_in_turn() -> None:
    (asked,) = switching.asked_for(["timed_checks", "poisoned_outputs"])
    assert asked == (("poisoned_outputs", "timed_checks"),) * 2
    each = switching.asked_for(["all"])
    assert [heads for heads, _ in each] == [(name,) for name in DEFENCES]
    assert dict(each)[("physical_floor",)] == ("timed_checks", "physical_floor")
    with pytest.raises(InputError, match="found luck"):
        switching.asked_for(["luck"])


def test_only_what_the_harness_leaves_out_is_measured_again() -> None:
    assert switching.needs_measuring(("screen",))
    assert switching.needs_measuring(("physical_floor", "timed_checks"))
    assert not switching.needs_measuring(("physical_floor", "memcheck"))


def test_attacks_that_name_a_defence_first_are_tried(subjects: tuple[Subject, ...]) -> None:
    tried = switching.concerned(subjects, ("memcheck", "screen"), chosen=False)
    assert [one.name for one in tried] == ["attacks/library/cublas_include", "attacks/undefined/oob_read"]
    assert len(switching.concerned(subjects, (), chosen=True)) == 4


def test_without_evidence_all_is_unknown(subjects: tuple[Subject, ...]) -> None:
    store = Store(None, "selftest_h100", "h100")
    found = switching.from_stores(subjects, "memcheck", store, store)
    assert found.unknown == ("undefined/oob_read",)
    line = switching.line(found)
    assert line == "without memcheck: 0 of 0 attacks pass: none; not measured: undefined/oob_read"
