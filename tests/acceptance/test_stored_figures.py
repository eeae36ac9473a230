"""What GPU tests measured, held to their own demands again, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.gpu import test_hostile, test_injected_faults, test_pool, test_recovery, test_spin

FOLDER = ROOT / "tests" / "evidence"
DEMANDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "hostile.json": test_hostile.expect_figures,
    "injected_faults.json": test_injected_faults.expect_figures,
    "pool_throughput.json": test_pool.expect_figures,
    "recovery.json": test_recovery.expect_figures,
    "spin.json": test_spin.expect_figures,
}


@pytest.mark.parametrize("name", DEMANDS)
def test_stored_figures_are_what_their_test_demands(name: str) -> None:
    DEMANDS[name](json.loads((FOLDER / name).read_text()))


def test_figures_that_are_off_are_refused() -> None:
    hostile = json.loads((FOLDER / "hostile.json").read_text())
    rows = [hostile["rows"][0] | {"status": "completed"}, *hostile["rows"][1:]]
    for change in (
        {"processes_left": ["7 uid 0 b''"]},
        {"wrongly_attributed": ["a mark of another"]},
        {"latency_after_ns": hostile["latency_before_ns"] * 1.011},
        {"device_memory_after_mib": hostile["device_memory_before_mib"] + 65},
        {"rows": rows},
    ):
        with pytest.raises(AssertionError):
            test_hostile.expect_figures(hostile | change)


def test_a_published_number_that_is_off_is_refused() -> None:
    figures = json.loads((FOLDER / "injected_faults.json").read_text())
    (name, (first, *others)), *_ = figures["published"].items()
    for change in (
        {"speedup": first["speedup"] * 1.04},
        {"speedup": first["speedup"] * 0.9},
        {"speedup": first["speedup"] * 1.04, "flags": ["clock_disagreement"]},
        {"flags": ["disturbed"]},
    ):
        with pytest.raises(AssertionError):
            test_injected_faults.expect_figures(
                figures | {"published": figures["published"] | {name: [first | change, *others]}}
            )
    charged = first | {"speedup": first["speedup"] * 0.9, "flags": ["clock_disagreement"]}
    test_injected_faults.expect_figures(figures | {"published": figures["published"] | {name: [charged, *others]}})
