"""Fixtures of the acceptance tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

MONDAY = ("-p", "no:cacheprovider", "--profiler", "replay", "-m", "h100", "--run=monday")
"""The command line of the run ``monday``, and of going on with it."""


@pytest.fixture(scope="session")
def finished_monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run is kept once it was made: a pytest takes seconds, a copy none."""
    return tmp_path_factory.mktemp("finished") / "monday"


@pytest.fixture
def monday(judged: pytest.Pytester, finished_monday: Path) -> pytest.Pytester:
    """A checkout with a finished run."""
    run = judged.path / "generated" / "monday"
    if finished_monday.exists():
        shutil.copytree(finished_monday, run, symlinks=True)
    else:
        judged.runpytest_subprocess(*MONDAY).assert_outcomes(passed=15, deselected=15)
        shutil.copytree(run, finished_monday, symlinks=True)
    return judged
