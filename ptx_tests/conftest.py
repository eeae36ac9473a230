"""The benchmark is ``test_turns.py``; the validation of the packs is another thing, and runs only when it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKS = frozenset({"test_packs.py", "packs"})


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the packs' validation out unless the command line names it: its tests are no turns of the benchmark."""
    # The last three parts of a path: the name of the checkout's own folder says nothing.
    named = any(PACKS & set(Path(argument.partition("::")[0]).parts[-3:]) for argument in map(str, config.args))
    return True if collection_path.name in PACKS and not named else None
