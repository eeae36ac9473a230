"""The self-test's command on a device: it measures, keeps, reuses, and prints the spread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.conftest import ROOT

TIMEOUT_S = 240


def selftest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptxbench", "selftest", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_it_measures_once_and_keeps(tmp_path: Path) -> None:
    chosen = ("-k", "memoizing/one_layer", "--record", str(tmp_path))
    first = selftest(*chosen)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "0 attacks valid, 0 honest rejected, 0 caught by another rule than expected, 0 unknown, of 2" in first.stdout
    assert first.stdout.count("[kept]") == 0
    (kept,) = tmp_path.iterdir()
    assert kept.name == "selftest_h100.json"
    again = selftest(*chosen)
    assert again.returncode == 0
    assert again.stdout.count("[kept]") == 2


def test_it_prints_the_spread(tmp_path: Path) -> None:
    done = selftest("--repeat", "2", "--record", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    spreads = json.loads((tmp_path / "repeat_h100.json").read_text())
    assert len(spreads) == 5
    assert all(len(spread["latencies_ms"]) == 2 for spread in spreads)
