"""The table of the spread."""

from __future__ import annotations

from ptxbench.selftest.spread import Spread, lines


def test_the_table() -> None:
    spread = Spread(
        case="gemm",
        latencies_ms=(1.0, 1.01, 0.99, 1.0, 1.02, 1.0),
        baselines_ms=(0.9,) * 6,
        device="a device",
        driver="1",
        measured_at=("2026-11-30T00:00:00+00:00",) * 6,
        commit="unknown",
    )
    assert abs(spread.relative_range - 0.03) < 1e-9
    head, row = lines([spread])
    assert head.split()[0] == "case"
    assert row.split() == ["gemm", "6", "1.0000", "0.9900", "to", "1.0200", "3.00%", "0.00%"]
