"""The attacks that one defence alone stops: of at least ten defences, and each with a switch."""

from __future__ import annotations

from ptxbench.profiler.defences import DEFENCES
from ptxbench.selftest import switching
from ptxbench.selftest.subjects import Subject, load_subjects
from tests.conftest import ROOT
from tests.support.corpus import ATTACKS, defences

ONE_LAYER = [one for one in load_subjects(ROOT, "h100", [ATTACKS]) if "/one_layer/" in one.name]


def first(subject: Subject) -> str:
    assert subject.attack is not None
    return subject.attack.defences[0]


def test_they_cover_at_least_ten_defences() -> None:
    assert len({first(one) for one in ONE_LAYER}) >= 10


def test_each_names_what_is_switched_off_for_it_and_nothing_else() -> None:
    for one in ONE_LAYER:
        assert one.attack is not None
        assert set(one.attack.defences) == set(switching.set_of(first(one))), one.name


def test_every_switch_is_described_beside_the_attacks() -> None:
    assert set(DEFENCES) <= set(defences())
