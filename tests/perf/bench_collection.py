"""Collecting a full study: 5 workloads x 3 variants x 4 trajectories x 8 turns x 3 checks."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

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
