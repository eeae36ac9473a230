"""Collecting a full study: 5 workloads x 3 variants x 4 trajectories x 8 turns x 3 checks."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

PLUGIN_S = 1.0
"""Processor time that the plugin may add to a collection: its import, and naming the items."""
SPY = """
import sys, time, pytest
started = time.process_time()
import ptxbench.plugin.pytest_plugin
spent = time.process_time() - started

class Spy:
    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc):
        global spent
        started = time.process_time()
        result = yield
        spent += time.process_time() - started
        return result

pytest.main(["-W", "ignore:Module already imported", *sys.argv[1:]], plugins=[Spy()])
print(spent)
"""
STUDY = ["-m", "h100", "--turns", "8", "--trajectories", "4", "--variants", "all"]


def collect(*options: str) -> str:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_collecting_the_study(benchmark: BenchmarkFixture) -> None:
    output = benchmark.pedantic(lambda: collect(*STUDY), rounds=5, warmup_rounds=1)
    assert "1440/" in output


def test_starting_pytest_alone(benchmark: BenchmarkFixture) -> None:
    """What of it is pytest's own: one workload, one turn."""
    output = benchmark.pedantic(lambda: collect("-m", "h100", "--case", "gemm*"), rounds=5, warmup_rounds=1)
    assert "3/" in output


def test_what_the_plugin_adds(benchmark: BenchmarkFixture) -> None:
    spent: list[float] = []

    def collected() -> None:
        command = [
            sys.executable,
            "-c",
            SPY,
            "--collect-only",
            "-qq",
            "-p",
            "no:cacheprovider",
            *STUDY,
        ]
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        spent.append(float(output.splitlines()[-1]))

    benchmark.pedantic(collected, rounds=5, warmup_rounds=1)
    benchmark.extra_info["plugin_s"] = spent
    assert min(spent) < PLUGIN_S
