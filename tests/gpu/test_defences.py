"""No defence is decoration: with it on no attack scores, with it off at least one does.

The attacks are those under ``tests/attacks/*/one_layer``, each of which one defence alone stops.
``PTXBENCH_EVIDENCE_DIR=DIR`` keeps what was measured there, as ``ptxbench selftest --record DIR`` does.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest

from ptxbench.profiler.defences import DEFENCES
from ptxbench.selftest import measuring, switching
from ptxbench.selftest.kept import Store, stem_of
from ptxbench.selftest.measuring import Bench, Judged, Plan
from ptxbench.selftest.subjects import Subject, load_subjects
from ptxbench.toolchain import Toolchain
from tests.gpu.conftest import ROOT
from tests.support.corpus import ATTACKS

RESET_LIMIT_S = 50e-6
"""What letting go of persisting cache lines may cost, of a staging of some 700 us."""


def subjects() -> tuple[Subject, ...]:
    return tuple(one for one in load_subjects(ROOT, "h100", [ATTACKS]) if "/one_layer/" in one.name)


def heads() -> list[str]:
    """Defences that an attack of these names first, those with the same measurements beside each other."""
    named = {one.attack.defences[0] for one in subjects() if one.attack is not None}
    return sorted(named, key=lambda name: [DEFENCES[name], *switching.set_of(name)[::-1]])


def evidence_folder() -> Path | None:
    folder = os.environ.get("PTXBENCH_EVIDENCE_DIR")
    return Path(folder) if folder else None


def measured(without: tuple[str, ...], chosen: tuple[Subject, ...]) -> list[Judged]:
    """In an oracle of its own, that ends with it: two at a time would only wait for each other."""
    store = Store(evidence_folder(), stem_of("h100", without=bool(without)), "h100")
    toolchain = Toolchain.discover(screened="screen" not in without)
    plan = Plan(measuring.default_jobs(), measuring.harness_commit(ROOT), without)
    bench = Bench(toolchain, lambda: measuring.open_local(ROOT, without), store, plan)
    try:
        return list(bench.run(chosen))
    finally:
        bench.close()


@pytest.fixture(scope="module")
def with_all() -> dict[str, Judged]:
    """Verdicts with all defences on."""
    return {one.subject.name: one for one in measured((), subjects())}


@pytest.mark.parametrize("name", [one.name for one in subjects()])
def test_with_all_defences_no_attack_scores(name: str, with_all: dict[str, Judged]) -> None:
    one = with_all[name]
    assert one.verdict is not None, one.why
    assert not one.escaped
    assert one.differences == [], one.verdict.message


@pytest.mark.parametrize("name", heads())
def test_without_a_defence_an_attack_scores(name: str, with_all: dict[str, Judged]) -> None:
    without = switching.set_of(name)
    chosen = switching.concerned(subjects(), (name,), chosen=False)
    if switching.needs_measuring(without):
        results = measured(without, chosen)
    else:
        results = [switching.rejudged(one, with_all[one.name].kept, without) for one in chosen]
    verdicts = [one.verdict and (one.verdict.rule, one.verdict.flags, one.verdict.speedup) for one in results]
    assert any(one.escaped for one in results), f"{verdicts}; {[one.why for one in results]}"


def test_at_least_ten_defences_are_shown_to_matter() -> None:
    assert len(heads()) >= 10


def test_letting_go_of_persisting_lines_costs_next_to_nothing() -> None:
    import torch
    from cuda.bindings import runtime

    torch.zeros(1, device="cuda")
    taken = []
    for _ in range(200):
        begin = time.perf_counter()
        runtime.cudaCtxResetPersistingL2Cache()
        taken.append(time.perf_counter() - begin)
    assert statistics.median(taken) < RESET_LIMIT_S, taken[:5]
