"""The table of the spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ptxbench.cases import Case, Suite, load_suite
from ptxbench.profiler.protocol import Health
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Evidence
from ptxbench.selftest import spread
from ptxbench.selftest.spread import Spread, lines, repeat
from ptxbench.toolchain import Built, Toolchain
from tests.conftest import ROOT
from tests.unit import factories as make


class Interrupted(ReplayProfiler):
    """Stored evidence of the reference solutions, until somebody loses patience in the third round."""

    asked = 0

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        self.asked += 1
        if self.asked > 2:
            raise KeyboardInterrupt
        return super().evaluate(case, built)

    def health(self) -> Health:
        return super().health().model_copy(update={"device": make.DEVICE})


class OneCase(NamedTuple):
    """A suite of which one case is enough: each is compiled."""

    whole: Suite

    def cases(self, arch: str) -> tuple[Case, ...]:
        return (self.whole.case(make.GEMM, arch),)


def test_an_interrupted_series_keeps_its_rounds(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "load_suite", lambda root, name: OneCase(load_suite(root, name)))
    kept: list[Sequence[Spread]] = []
    profiler = Interrupted([ROOT / "generated" / "reference"])
    toolchain = Toolchain.discover(cache_dir=build_cache)
    with pytest.raises(KeyboardInterrupt):
        repeat(ROOT, "h100", 9, toolchain, profiler, "unknown", keep=kept.append)
    assert [len(one.latencies_ms) for one in kept[-1]] == [2]


def test_the_table() -> None:
    found = Spread(
        case="gemm",
        latencies_ms=(1.0, 1.01, 0.99, 1.0, 1.02, 1.0),
        baselines_ms=(0.9,) * 6,
        device="a device",
        driver="1",
        measured_at=("2026-11-30T00:00:00+00:00",) * 6,
        commit="unknown",
    )
    assert abs(found.relative_range - 0.03) < 1e-9
    head, row = lines([found])
    assert head.split()[0] == "case"
    assert row.split() == ["gemm", "6", "1.0000", "0.9900", "to", "1.0200", "3.00%", "0.00%"]
