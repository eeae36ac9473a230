"""The precision gate and what other families than the official one say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ptxbench.records import FamilyCheck, Verdict
from ptxbench.records.mismatch import MismatchPattern
from ptxbench.verdict import judge
from ptxbench.verdict.precision import BLOCK_FLOOR, FAMILY_CEILING, FLOORS, PRECISION_BOUND, block_bound, bound
from ptxbench.verdict.rules import Flag
from tests.unit.factories import (
    make_baseline,
    make_build,
    make_call,
    make_comparison,
    make_evidence,
    make_run,
    make_trial,
    suite_case,
)

FINITE = MismatchPattern(axes=(), zeros=0, infinite=0)
LIBRARY = {"shifted": {"C": 0.002}, "spiky": {"C": 0.002}}


def verdict(run: dict[str, Any]) -> Verdict:
    return judge(suite_case(), make_build(), make_evidence(run=make_run(**run)))


def family(name: str = "shifted", call: Any = None, message: str = "", **output: Any) -> FamilyCheck:
    checked = make_call(outputs=(make_comparison(**output),)) if call is None else call
    return FamilyCheck(family=name, call=None if message else checked, message=message)


def with_families(*checks: FamilyCheck, library: dict[str, dict[str, float]] | None = None) -> Verdict:
    baseline = make_baseline(families=LIBRARY if library is None else library)
    return verdict({"families": checks, "baseline": baseline})


def test_a_result_of_low_precision_is_correct_and_has_no_speedup() -> None:
    """FP8 within the loose tolerance: the official rule passes it, the gate does not let it score."""
    low = make_trial(checks=(make_call(outputs=(make_comparison(rms_error=0.026),)), make_call(3)))
    found = verdict({"trials": (low,) * 3})
    assert found.correct
    assert found.flags == (Flag.LOW_PRECISION,)
    assert found.speedup is None
    assert found.latency_ms is not None
    assert found.relative_rms == 0.026


def test_an_error_that_is_no_number_is_no_small_one() -> None:
    low = make_trial(checks=(make_call(outputs=(make_comparison(rms_error=math.nan),)), make_call(3)))
    assert verdict({"trials": (low,) * 3}).flags == (Flag.LOW_PRECISION,)


@pytest.mark.parametrize(("own", "error", "flags"), [(1.7e-4, 1.9e-3, ()), (1.7e-4, 2.1e-3, (Flag.LOW_PRECISION,))])
def test_what_rounding_costs_is_no_low_precision(own: float, error: float, flags: tuple[Flag, ...]) -> None:
    """A library of equal sums differs from the reference in few roundings: four times that is still next to nothing."""
    outputs = (make_comparison(rms_error=error),)
    trial = make_trial(checks=(make_call(outputs=outputs), make_call(3, outputs=outputs)))
    assert verdict({"trials": (trial,) * 3, "baseline": make_baseline(relative_rms={"C": own})}).flags == flags


def test_bounds() -> None:
    assert bound(0.01, "bfloat16") == PRECISION_BOUND * 0.01
    assert bound(0.0, "bfloat16") == FLOORS["bfloat16"]
    assert bound(6e-8, "float32") == FLOORS["float32"]
    assert bound(0.0, "int32") == 0.0
    assert block_bound(0.01, "bfloat16") == PRECISION_BOUND * 0.01
    assert block_bound(0.0, "bfloat16") == BLOCK_FLOOR * FLOORS["bfloat16"]


def test_evidence_without_families_has_no_flag_of_them() -> None:
    assert verdict({}).flags == ()


def test_a_kernel_that_is_right_on_every_family_scores() -> None:
    found = with_families(family(rms_error=0.007), family("spiky", rms_error=0.003, mismatched=9, where=FINITE))
    assert found.flags == ()
    assert found.speedup is not None


@pytest.mark.parametrize(
    "check",
    [
        family(rms_error=0.009),
        family(nan=1),
        family(mismatched=5),
        family(mismatched=5, where=FINITE.model_copy(update={"infinite": 1})),
        family(message="the process was ended by SIGSEGV during a call"),
        family(call=make_call(inputs_intact=False)),
        family(call=make_call(guards_intact=False)),
        family(call=make_call(outputs=())),
        family(call=make_call(outputs=(make_comparison().model_copy(update={"name": "other"}),))),
    ],
    ids=["error", "nan", "perhaps-infinite", "infinite", "crash", "inputs", "guards", "no-output", "other-output"],
)
def test_a_kernel_that_is_right_on_official_inputs_alone_does_not_score(check: FamilyCheck) -> None:
    found = with_families(family("spiky"), check.model_copy(update={"family": "shifted"}))
    assert found.correct
    assert found.flags == (Flag.FAMILY_MISMATCH,)
    assert found.speedup is None


@pytest.mark.parametrize(
    ("own", "found", "flags"),
    [
        (0.003, 0.011, ()),
        (0.003, 0.013, (Flag.FAMILY_MISMATCH,)),
        (0.0, 0.0077, ()),
        (0.0, 0.0079, (Flag.FAMILY_MISMATCH,)),
        (0.003, None, ()),
        (None, 1.0, ()),
    ],
)
def test_the_worst_block_is_compared_with_the_librarys_worst(
    own: float | None, found: float | None, flags: tuple[Flag, ...]
) -> None:
    """The whole is fine. Evidence of before blocks were measured says of them nothing."""
    worst = {} if own is None else {"shifted": {"C": own}}
    baseline = make_baseline(families=LIBRARY, families_worst=worst)
    checks = (family("spiky"), family(worst_block_rms=found))
    assert verdict({"families": checks, "baseline": baseline}).flags == flags


@pytest.mark.parametrize("own", [2 * FAMILY_CEILING, math.inf])
def test_a_family_that_the_library_cannot_compute_says_nothing(own: float) -> None:
    found = with_families(family(rms_error=0.9), library={"shifted": {"C": own}})
    assert found.flags == (Flag.FAMILY_UNQUALIFIED,)
    assert found.speedup is not None


@pytest.mark.parametrize("library", [{}, {"shifted": {}}])
def test_a_family_that_the_library_was_not_measured_on_says_nothing(library: dict[str, dict[str, float]]) -> None:
    assert with_families(family(rms_error=0.9), library=library).flags == (Flag.FAMILY_UNQUALIFIED,)


def test_a_reference_that_is_its_own_library_gates_nothing() -> None:
    trial = make_trial(checks=(make_call(outputs=(make_comparison(rms_error=0.1),)), make_call(3)))
    baseline = make_baseline(relative_rms={"C": 0.0})
    assert verdict({"trials": (trial,) * 3, "baseline": baseline}).flags == ()


def test_an_end_on_a_family_that_says_nothing_does_not_spare_the_others() -> None:
    """The process that ends on the library's weak family is called on no other one."""
    ended = family("structure", message="the process exited with code 3 during a call")
    found = with_families(ended, library={"structure": {"C": 0.5}, **LIBRARY})
    assert set(found.flags) == {Flag.FAMILY_MISMATCH, Flag.FAMILY_UNQUALIFIED}
    assert found.speedup is None
    assert with_families(ended, library={"structure": {"C": 0.5}}).flags == (Flag.FAMILY_UNQUALIFIED,)
