"""What a device said of both corpora, judged again by today's rules: no attack scores, no honest kernel is rejected."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from ptxbench.profiler.defences import DEFENCES
from ptxbench.selftest import page, switching, tables
from ptxbench.selftest.kept import Store, stem_of
from ptxbench.selftest.measuring import Judged, judged_of
from ptxbench.selftest.subjects import Subject, load_subjects
from tests.conftest import ROOT, compute_capability

ARCH = "h100"
FOLDER = ROOT / "tests" / "evidence"
UNKNOWN: frozenset[str] = frozenset()
"""Kernels that may be without evidence: those that came after the last measurement. Empty after one."""
SHOWN_TO_MATTER = 8
"""At least so many defences have an attack in the evidence that scores without them."""


def evidence(*, without: bool = False) -> Store:
    store = Store(FOLDER, stem_of(ARCH, without=without), ARCH)
    if not list(store):
        name = f"tests/evidence/{stem_of(ARCH, without=without)}.json"
        command = f"ptxbench selftest {'--without all ' if without else ''}--record tests/evidence"
        pytest.skip(f"no {name} yet: unknown until `{command}` has run on a Hopper device")
    return store


@cache
def subjects() -> tuple[Subject, ...]:
    return load_subjects(ROOT, ARCH)


@pytest.fixture(scope="module")
def results() -> list[Judged]:
    store = evidence()
    return [judged_of(subject, store.current(subject)) for subject in subjects()]


def test_no_attack_scores_and_no_honest_kernel_is_rejected(results: list[Judged]) -> None:
    assert {one.subject.name: one.differences for one in results if one.escaped} == {}


def test_every_verdict_is_the_expected_one(results: list[Judged]) -> None:
    assert {one.subject.name: one.differences for one in results if one.differences} == {}


def test_nothing_is_unknown_but_what_is_listed(results: list[Judged]) -> None:
    assert {one.subject.name for one in results if one.verdict is None} == UNKNOWN


def test_all_of_it_was_measured_with_all_defences(results: list[Judged]) -> None:
    kept = [one.kept for one in results if one.kept is not None]
    assert {entry.name for entry in kept if entry.without or (entry.evidence and entry.evidence.defences_off)} == set()
    assert page.origin(kept) != tables.UNKNOWN


def test_defences_matter() -> None:
    normal, weakened = evidence(), evidence(without=True)
    passing = {name: switching.from_stores(subjects(), name, normal, weakened).passing for name in DEFENCES}
    assert sum(bool(names) for names in passing.values()) >= SHOWN_TO_MATTER, passing


def test_the_page_shows_what_the_evidence_says() -> None:
    text = (ROOT / page.DOCUMENT).read_text()
    assert page.with_tables(ROOT, text) == text, "run `ptxbench selftest --table --write`"


def selftest(checkout: pytest.Pytester, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptxbench", "selftest", *arguments],
        cwd=checkout.path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(compute_capability() is not None, reason="says what happens on a machine without a device")
def test_without_a_device_the_command_says_so(checkout: pytest.Pytester) -> None:
    (checkout.path / "tests").symlink_to(ROOT / "tests")
    done = selftest(checkout, "-k", "decoy/one_layer")
    assert done.returncode == 2
    assert "expected a CUDA device and driver, found none" in done.stderr
    done = selftest(checkout, "--without", "luck")
    assert done.returncode == 2
    assert "expected names of defences, found luck" in done.stderr
    screened = selftest(checkout, "-k", "library/cublas_include")
    assert screened.returncode == 0, screened.stdout + screened.stderr
    assert "attacks/library/cublas_include: screened screen.library_header" in screened.stdout
    assert "0 attacks valid, 0 honest rejected" in screened.stdout


def test_outside_of_a_checkout_the_command_says_so(checkout: pytest.Pytester) -> None:
    done = selftest(checkout, "-k", "decoy")
    assert done.returncode == 2
    assert "the corpora are part of a checkout, not of the installed package" in done.stderr
