"""What a device said of every case, judged again: libraries, families, null outputs, memory; and docs/workloads.md."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ptxbench.agent import suite_identity
from ptxbench.cases import Case, load_suite
from ptxbench.profiler.footprint import PROCESSES_BYTES
from ptxbench.records import BaselineMeasurement, DeviceIdentity
from ptxbench.verdict.precision import qualified
from tests.conftest import ROOT
from tests.support.null_outputs import NULLS
from tests.support.partial_nulls import parts

EVIDENCE: dict[str, Any] = json.loads((ROOT / "tests" / "evidence" / "workloads_h100.json").read_text())
CASES = load_suite(ROOT, "all").cases("h100")
DEVICE_BYTES = 80 * 10**9


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def measured(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = EVIDENCE["cases"][case.name]
    return found


@pytest.fixture
def baseline(measured: dict[str, Any]) -> BaselineMeasurement:
    return BaselineMeasurement.model_validate_json(json.dumps(measured["baseline"]))


def test_it_is_of_a_hopper_device_and_of_these_cases() -> None:
    device = DeviceIdentity.model_validate_json(json.dumps(EVIDENCE["device"]))
    assert device.compute_capability == (9, 0)
    assert set(EVIDENCE["cases"]) == {case.name for case in CASES}


def test_the_case_is_the_one_that_was_measured(case: Case, measured: dict[str, Any]) -> None:
    assert measured["case_sha256"] == suite_identity([case])


def test_the_library_is_the_named_one_and_near_the_exact_result(case: Case, baseline: BaselineMeasurement) -> None:
    assert (baseline.library, baseline.call) == (case.baseline.library, case.baseline.call)
    assert baseline.version not in ("", "missing")
    assert bool(baseline.detail) == (baseline.library == "flashinfer")
    assert baseline.exact is not None
    for name, dtype in case.dtypes().items():
        if name not in case.output_shapes():
            continue
        bf16 = dtype == "bfloat16"
        assert baseline.exact.library[name] < (5e-3 if bf16 else 1e-5), name
        assert baseline.exact.reference[name] < (2**-8 if bf16 else 1e-6), name


def test_the_library_computes_every_family(case: Case, baseline: BaselineMeasurement) -> None:
    families = {"shifted", "spiky"} | ({"structure"} if case.name.startswith("gqa") else set())
    assert set(baseline.families) == families
    assert all(map(qualified, baseline.families.values()))


def test_what_computes_nothing_was_refused_under_every_family(case: Case, measured: dict[str, Any]) -> None:
    alone = [f"constant {name} alone" for name in case.output_shapes()]
    families = {"normal", *measured["baseline"]["families"]}
    assert measured["refused"] == {family: [*NULLS, *alone] for family in families}


def test_a_missing_part_was_refused_under_every_other_family(case: Case, measured: dict[str, Any]) -> None:
    if "refused_parts" not in measured:
        pytest.skip("measured before blocks were told apart: unknown")
    families = measured["baseline"]["families"]
    outputs = case.output_shapes()
    wanted = {
        family: {f"no {part} of {name}" for name in outputs for part in parts(case, family, name)}
        for family in families
    }
    assert {family: set(names) for family, names in measured["refused_parts"].items()} == wanted


def test_it_fitted_an_80_gb_device(measured: dict[str, Any]) -> None:
    assert measured["state_bytes"] < measured["peak_bytes"] < DEVICE_BYTES - PROCESSES_BYTES


def test_the_document_has_the_measured_numbers(case: Case, measured: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "workloads.md").read_text()
    (row,) = re.findall(rf"^\| `{case.name}` \| [\d,]+\.\d \|.*$", text, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[7:] == [f"{measured['time_ms']:.3f} ms", f"{measured['state_s']:.1f} s"]
