"""Every case fits an 80 GB device, and docs/workloads.md says the same numbers."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.cases import load_suite
from ptxbench.profiler.footprint import footprint
from tests.support.small_cases import NAMES, ROOT, staged

CASES = load_suite(ROOT, "all").cases("h100")
DEVICE_BYTES = 80 * 10**9


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_fits_an_80_gb_device(case):
    found = footprint(case)
    assert found.total < DEVICE_BYTES / 2, "half, so that a candidate's scratch memory fits too"
    inputs_and_outputs = [*case.input_shapes().items(), *case.output_shapes().items()]
    assert found.arena > sum(torch.Size(shape).numel() * 2 for _, shape in inputs_and_outputs if shape is not None)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_of_a_draw_is_what_is_counted(name):
    subject = staged(name, "normal")
    kept = [*subject.checked.references.values(), *subject.checked.derived.values()]
    families = 3 if name.startswith("gqa") else 2
    assert footprint(subject.case).checked == (12 + families) * sum(tensor.nbytes for tensor in kept)


def test_the_document_has_the_computed_numbers():
    text = (ROOT / "docs" / "workloads.md").read_text()
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in text.splitlines()
        if re.match(r"\| `\w+` \| [\d,]+\.\d \|", line)
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    assert list(rows) == [case.name for case in CASES]
    for case in CASES:
        found = footprint(case)
        memory = [f"{part / 1e9:.2f}" for part in (found.arena, found.checked, found.building, found.total)]
        assert rows[case.name][:6] == [f"{case.flops / 1e9:,.1f}", f"{case.bytes / 1e6:,.1f}", *memory], case.name
