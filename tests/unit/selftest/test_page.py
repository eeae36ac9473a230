"""The tables of docs/trust.md: from evidence, and unknown without."""

from __future__ import annotations

import pytest

from ptxbench.errors import InputError
from ptxbench.selftest import page
from ptxbench.selftest.kept import Store
from ptxbench.selftest.subjects import Subject
from tests.conftest import ROOT
from tests.unit.selftest.test_kept import entry


def test_without_evidence_no_figure_is_claimed(subjects: tuple[Subject, ...]) -> None:
    store = Store(None, "selftest_h100", "h100")
    lines = list(page.tables_of(ROOT, subjects, store, store))
    assert lines[0] == "Measured by: unknown."
    assert "| decoy | 1 | unknown | 1 | unknown 1 |" in lines
    assert "| **all** | 4 | unknown | 4 |  |" in lines
    assert next(line for line in lines if line.startswith("| `memcheck`")).endswith("| 1 | unknown |")
    assert next(line for line in lines if line.startswith("| `content_hashes`")).endswith(f"| {page.NEVER_OFF} |")


def test_the_origin_names_device_day_and_commit() -> None:
    told = page.origin([entry(), entry("honest/two", commit="0123456789abcdef+")])
    assert told.startswith("NVIDIA H200, driver ")
    assert "2026-11-29; harness 0123456789ab+, unknown; 2 kernels ran" in told


def test_a_document_without_the_marks_is_said() -> None:
    with pytest.raises(InputError, match="put them around the tables"):
        page.with_tables(ROOT, "# Trust\n")
