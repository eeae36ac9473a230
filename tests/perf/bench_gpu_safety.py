"""What checking memory safety costs: all four tools as ``--safety full`` runs them, against plain racecheck.

Plain is what somebody does by hand: racecheck over one call of the full workload. It is given up after
``PTXBENCH_PLAIN_LIMIT_S`` seconds (default 60) and then told as "more than". Run by itself::

    pytest tests/perf/bench_gpu_safety.py -o python_files='bench_*.py'

``PTXBENCH_EVIDENCE_DIR=DIR`` writes the figures as ``DIR/safety_figures.json``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.profiler.safety_cache import SafetyCache
from ptxbench.records import SAFETY_TOOLS, Candidate, ToolStatus
from tests.perf.bench_gpu_evaluation import PRIMARY, reference
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

LIMIT_S = float(os.environ.get("PTXBENCH_PLAIN_LIMIT_S", "60"))


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, Any]]:
    """Figures by case, written behind the last one."""
    found: dict[str, Any] = {}
    yield found
    keep_figures("safety_figures.json", found)


@pytest.mark.parametrize("name", PRIMARY)
def test_full_safety_against_plain_racecheck(
    name: str,
    benchmark: BenchmarkFixture,
    cases: dict[str, Case],
    profiler: LocalProfiler,
    toolchain: Toolchain,
    figures: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = cases[name]
    built = toolchain.build(Candidate(source=reference(name)), case.arch)
    assert profiler.evaluate(case, built) is not None  # states and spares are there, as they are in a run

    def full() -> dict[str, dict[str, Any]]:
        runs = [profiler.sanitize(case, built, tool) for tool in SAFETY_TOOLS]
        return {
            run.tool: {
                "status": run.status.value,
                "findings": run.finding_count,
                "wall_ms": run.wall_ms,
                "outputs_match": run.outputs_match,
                "message": run.message[:200],
                "checked_before": run.checked_before,
            }
            for run in runs
        }

    monkeypatch.setattr(profiler, "_safety_cache", SafetyCache(tmp_path))
    begun = time.perf_counter()
    by_tool = benchmark.pedantic(full, rounds=1)
    full_s = time.perf_counter() - begun
    begun = time.perf_counter()
    again = full()
    again_s = time.perf_counter() - begun
    monkeypatch.setattr(profiler, "_safety_cache", None)
    # The same case without a small workload: the tool looks at the full one.
    whole = case.model_copy(update={"shrunk_axes": {}})
    begun = time.perf_counter()
    plain = profiler.sanitize(whole, built, "racecheck", limit_s=LIMIT_S)
    plain_s = time.perf_counter() - begun
    more = plain.status is ToolStatus.TIMEOUT
    told = {
        "full_s": round(full_s, 2),
        "by_tool": by_tool,
        "again_s": round(again_s, 3),
        "again_checked_before": [tool for tool, run in again.items() if run["checked_before"]],
        "plain_racecheck_s": round(plain_s, 2),
        "plain_status": plain.status.value,
        "plain_over_full": f"{'more than ' if more else ''}{plain_s / full_s:.1f}x",
        "limit_s": LIMIT_S,
    }
    figures[name] = told
    benchmark.extra_info.update(told)
