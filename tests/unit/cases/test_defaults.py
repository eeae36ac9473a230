"""Entries of a suite that leave out what the defaults say."""

from __future__ import annotations

import pytest

from ptxbench.cases import load_suite
from ptxbench.cases.suite import CaseEntry, GivenEntry, completed
from ptxbench.trace import load_workloads
from tests.support.trace_sets import RMSNORM, RMSNORM_DEFINITION, RMSNORM_WORKLOADS, SMALL
from tests.unit.cases import checkout

THREE_LINES = """\
schema_version: 1
name: mine
title: My cases
cases:
  - definition: rmsnorm_h2048
    workload: UUID
    archs: [h100, b200]
"""


@pytest.fixture
def root(tmp_path):
    root = checkout.copy(tmp_path)
    for path in (RMSNORM_DEFINITION, RMSNORM_WORKLOADS):
        target = root / "cases" / path
        target.parent.mkdir()
        target.write_bytes((SMALL / path).read_bytes())
    return root


def test_three_lines_are_an_entry(root):
    text = THREE_LINES.replace("UUID", load_workloads(SMALL / RMSNORM_WORKLOADS)[1].workload.uuid)
    (root / "cases" / "suites" / "mine.yaml").write_text(text)
    suite = load_suite(root, "mine")
    assert suite.archs == ("h100", "b200")
    case = suite.case(RMSNORM, "h100")
    assert (case.op, case.baseline.call, case.variants) == ("other", "definition.reference", ("none",))
    assert (case.trials, case.warmup, case.iterations) == (3, 10, 50)
    assert case.shrunk() is case


def test_what_an_entry_says_stands():
    definition = load_suite(checkout.ROOT, "primary").table[0].definition
    entry = GivenEntry(definition=definition.name, workload="u", archs=("h100",), flops="2*M", causal=True)
    whole = completed(entry, definition)
    assert isinstance(whole, CaseEntry)
    assert (whole.flops, whole.causal, whole.bytes, whole.op) == ("2*M", True, "2*M*N", "gemm")
