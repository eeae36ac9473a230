"""Code that is not the candidate's own, by hand-made evidence: the run-time half of the screen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.sandbox import MAX_MODULES, MAX_NAMES
from ptxbench.records import (
    Evidence,
    LoadedCode,
    LoadedLibrary,
    LoadedModule,
    Outcome,
    RunStatus,
    Verdict,
)
from ptxbench.verdict import Flag, Rule, judge
from ptxbench.verdict.loaded import MOST_ENTRY_POINTS, MOST_MODULES
from tests.unit.factories import KERNEL, digest, make_build, make_evidence, make_run, suite_case

OWN = LoadedModule(
    sha256=digest("c"), bytes=4096, from_candidate=True, code_sha256=digest("d"), matched_by="bytes", kernels=(KERNEL,)
)
JITTED = LoadedModule(
    sha256=digest("e"), bytes=9000, from_candidate=False, code_sha256=digest("f"), kernels=("_Z3ptxv",)
)
EMPTY = LoadedModule(sha256=digest("9"), bytes=800, from_candidate=False, matched_by="empty")
ALIKE = OWN.model_copy(update={"sha256": digest("8"), "from_candidate": False, "matched_by": "layout"})


def judged(loaded: LoadedCode | None, **changes: Any) -> Verdict:
    return judge(suite_case(), make_build(), make_evidence(run=make_run(loaded=loaded, **changes)))


def test_a_candidate_that_loaded_its_own_code_alone_is_correct() -> None:
    libraries = (LoadedLibrary(path="/usr/lib/libnvidia-ptxjitcompiler.so.1", allowed=True),)
    verdict = judged(LoadedCode(modules=(OWN, EMPTY), libraries=libraries, entry_points=("cuTensorMapEncodeTiled",)))
    assert (verdict.outcome, verdict.rule) == (Outcome.CORRECT, Rule.PASSED)
    assert verdict.speedup is not None


@pytest.mark.parametrize(
    ("loaded", "rule", "said"),
    [
        (LoadedCode(modules=(OWN, JITTED)), Rule.SCREEN_FOREIGN_MODULE, "(1 module)"),
        (LoadedCode(modules=(JITTED,)), Rule.SCREEN_FOREIGN_MODULE, "_Z3ptxv"),
        (LoadedCode(modules=(OWN, ALIKE)), Rule.SCREEN_FOREIGN_MODULE, KERNEL),
        (
            LoadedCode(modules=(OWN,), libraries=(LoadedLibrary(path="/opt/libcublas.so.13", allowed=False),)),
            Rule.SCREEN_FOREIGN_LIBRARY,
            "/opt/libcublas.so.13",
        ),
        (LoadedCode(modules=(OWN,), hidden=True), Rule.SCREEN_FOREIGN_LIBRARY, "kept the system from telling"),
        (LoadedCode(modules=(OWN,), entry_points=("cuModuleLoadData",)), Rule.SCREEN_DRIVER_ENTRY_POINT, "cuMod"),
        (LoadedCode(entry_points=("cuLibraryLoadData",)), Rule.SCREEN_DRIVER_ENTRY_POINT, "cuLibraryLoadData"),
        (LoadedCode(entry_points=("cuGetExportTable",)), Rule.SCREEN_DRIVER_ENTRY_POINT, "cuGetExportTable"),
        (LoadedCode(entry_points=("cuLaunchKernel", "cuFree")), Rule.SCREEN_DRIVER_ENTRY_POINT, ": cuFree"),
    ],
)  # fmt: skip
def test_other_code_makes_it_screened(loaded: LoadedCode, rule: Rule, said: str) -> None:
    verdict = judged(loaded)
    assert (verdict.outcome, verdict.rule, verdict.speedup) == (Outcome.SCREENED, rule, None)
    assert said in verdict.message


def test_the_layout_alone_decides_where_nothing_better_is_known() -> None:
    """A driver that finalizes code before it tells of it must not make every candidate foreign."""
    assert judged(LoadedCode(modules=(ALIKE,))).outcome is Outcome.CORRECT
    assert judged(LoadedCode(modules=(EMPTY, ALIKE))).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", ["cuTensorMapEncodeIm2col", "cuLaunchKernelEx", "cuFuncSetAttribute", "cuStreamQuery"])
def test_entry_points_that_a_launch_needs_are_no_finding(name: str) -> None:
    assert judged(LoadedCode(modules=(OWN,), entry_points=(name,))).outcome is Outcome.CORRECT


def test_what_is_beyond_telling_is_taken_to_be_foreign() -> None:
    """Whoever loads or looks up more than can be told of hides the rest behind what is harmless."""
    verdict = judged(LoadedCode(modules=(OWN,) * MOST_MODULES, unknown="more than 64 modules were loaded"))
    assert (verdict.rule, verdict.speedup) == (Rule.SCREEN_FOREIGN_MODULE, None)
    assert judged(LoadedCode(modules=(OWN,) * (MOST_MODULES - 1))).outcome is Outcome.CORRECT
    names = tuple(f"cuTensorMap{number}" for number in range(MOST_ENTRY_POINTS))
    assert judged(LoadedCode(modules=(OWN,), entry_points=names)).rule == Rule.SCREEN_DRIVER_ENTRY_POINT
    assert judged(LoadedCode(modules=(OWN,), entry_points=names[1:])).outcome is Outcome.CORRECT


def test_the_bounds_are_those_of_the_telling() -> None:
    assert (MOST_MODULES, MOST_ENTRY_POINTS) == (MAX_MODULES, MAX_NAMES)


def test_how_the_process_ended_comes_first() -> None:
    verdict = judged(LoadedCode(modules=(JITTED,)), status=RunStatus.CRASHED)
    assert verdict.rule == Rule.RUN_CRASH


EVIDENCE = make_evidence()
HARMLESS = st.builds(
    LoadedCode,
    modules=st.lists(st.sampled_from([OWN, EMPTY]), max_size=3).map(tuple),
    libraries=st.lists(st.builds(LoadedLibrary, path=st.text(), allowed=st.just(True)), max_size=2).map(tuple),
    entry_points=st.lists(st.sampled_from(["cuTensorMapEncodeTiled", "cuLaunchKernel"]), max_size=2).map(tuple),
    load_calls=st.lists(st.sampled_from(["cuLibraryLoadData", "cuModuleLoadData"]), max_size=2).map(tuple),
    anonymous_code_bytes=st.integers(0, 1 << 30),
)


@given(HARMLESS)
def test_evidence_without_the_field_is_judged_as_with_nothing_found(loaded: LoadedCode) -> None:
    run = EVIDENCE.run.model_copy(update={"loaded": loaded})
    told = judge(suite_case(), make_build(), EVIDENCE.model_copy(update={"run": run}))
    assert told == judge(suite_case(), make_build(), EVIDENCE)


def test_stored_evidence_reads_without_the_new_fields() -> None:
    document = EVIDENCE.model_dump(mode="json", exclude={"defences_off": True})
    for name in ("loaded", "containment", "disturbances"):
        del document["run"][name]
    read = Evidence.model_validate(document, strict=False)
    assert read.run.loaded is None
    assert read == EVIDENCE


def test_what_nobody_saw_scores_nothing() -> None:
    verdict = judged(LoadedCode(unknown="the driver told of no module that was loaded"))
    assert verdict.correct
    assert verdict.latency_ms is not None
    assert (verdict.speedup, verdict.flags) == (None, (Flag.LOADED_CODE_UNKNOWN,))
