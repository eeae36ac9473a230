"""A finished run of 480 turns (5 workloads x 3 variants x 4 trajectories x 8 turns), reported and started again."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.support.finished_run import MODEL, write_finished_run

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

REPORT_S = 2.0
"""Processor time that reporting a finished run may take, the start of Python included. Time on the wall, in the table,
also says who else is on the machine."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert write_finished_run(folder) == 480
    return folder


def python(*arguments: str) -> str:
    # As installed: with compiled modules kept, and without the plugins of other packages.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "plugins"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PTXBENCH_BENCH_KEY"] = "never-used"
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def timed(spent: list[float], *arguments: str) -> str:
    """The same, with the processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = python(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return output


def test_reporting_480_turns(benchmark: BenchmarkFixture, finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    spent: list[float] = []
    output = benchmark.pedantic(
        lambda: timed(spent, "ptxbench", "report", str(finished), "--json", str(path)), rounds=5, warmup_rounds=1
    )
    assert "480 turns measured in this run" in " ".join(output.split())
    assert len(json.loads(path.read_text())["turns"]) == 480
    benchmark.extra_info["processor_s"] = min(spent)
    assert min(spent) < REPORT_S


@pytest.mark.parametrize("checks", [1, 3])
def test_starting_480_finished_turns_again(
    benchmark: BenchmarkFixture, finished: Path, tmp_path: Path, checks: int
) -> None:
    """Under pytest: 480 and 1,440 items. Nobody is asked, and nothing is built: there is nobody to ask."""
    models = tmp_path / "models.yaml"
    entry = {
        "provider": "openai",
        "model": MODEL,
        "api_base": "http://127.0.0.1:9/v1",
        "api_key_env": "PTXBENCH_BENCH_KEY",
        "max_output_tokens": 32_000,
        "prices": {"input": 2.0, "output": 10.0},
    }
    models.write_text(f"models:\n  {MODEL}: {json.dumps(entry)}\n")
    arguments = ["-p", "no:cacheprovider", "-q", "-m", "h100", "--profiler=replay", f"--models-file={models}"]
    arguments += [f"--model={MODEL}", "--variants=all", "--trajectories=4", "--turns=8", f"--run={finished}"]
    arguments += ["-k", "test_correct"] if checks == 1 else []
    before = sorted((path, path.stat().st_mtime_ns) for path in finished.rglob("turn*"))
    spent: list[float] = []
    printed: list[float] = []

    def rerun() -> str:
        output = timed(spent, "pytest", *arguments)
        printed.append(float(output.rpartition(" in ")[2].split("s")[0]))
        return output

    output = benchmark.pedantic(rerun, rounds=5, warmup_rounds=1)
    benchmark.extra_info["processor_s"] = min(spent)
    benchmark.extra_info["printed_s"] = min(printed)
    assert f"{480 * checks} passed" in output
    assert "480 turns, 480 correct" in output
    assert sorted((path, path.stat().st_mtime_ns) for path in finished.rglob("turn*")) == before
