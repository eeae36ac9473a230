"""Blackwell's check programs are compiled only when they are named: their tests are no turns of the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests of this folder out unless the command line names the packs."""
    named = any("packs" in str(argument) for argument in config.args)
    return True if collection_path.suffix == ".py" and not named else None
