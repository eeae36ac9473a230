"""What the evaluator lends and tells beside its verdicts."""

from typing import Any

import pytest

from ptxbench.agent import Evaluator
from ptxbench.agent.meter import Meter
from ptxbench.errors import InfrastructureError
from ptxbench.models import Proposal
from ptxbench.records import Candidate
from tests.unit.agent.parts import FakeProfiler, FakeToolchain
from tests.unit.factories import suite_case

PROPOSAL = Proposal(candidate=Candidate(source="x"), origin="test")


def test_a_borrowed_toolchain_takes_a_compile_slot():
    toolchain: Any = FakeToolchain()
    evaluator = Evaluator(lambda: toolchain, compile_slots=1)
    with evaluator.borrowed_toolchain() as lent:
        assert lent is toolchain
        assert not evaluator._compile_slots.acquire(blocking=False)
    assert evaluator._compile_slots.acquire(blocking=False)


def test_without_a_compiler_nothing_is_lent():
    def discover() -> Any:
        raise InfrastructureError("compiler_missing", "none")

    with Evaluator(discover, 1).borrowed_toolchain() as lent:
        assert lent is None


@pytest.mark.parametrize(("origin", "measured"), [("measured", True), ("replayed", False)])
def test_only_measuring_keeps_a_device_busy(origin, measured):
    toolchain: Any = FakeToolchain()
    meter = Meter()
    profiler = FakeProfiler(origin=origin)
    seen: list[float | None] = []
    profiler.on_evaluate = lambda: seen.append(meter.progress().busy_share)
    Evaluator(lambda: toolchain, 1, meter).evaluate(suite_case(), PROPOSAL, profiler)
    assert (meter.progress().busy_share is not None) is measured
    assert (seen != [None]) is measured
