"""One session with a budget, or any number without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ptxbench.agent.session_lock import hold_session
from ptxbench.errors import InputError


@pytest.fixture
def held(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hold(held: ExitStack, folder: Path, alone: bool) -> None:
    held.callback(os.close, hold_session(folder, alone=alone))


def test_sessions_without_a_budget_share_a_run(tmp_path: Path, held: ExitStack) -> None:
    hold(held, tmp_path, alone=False)
    hold(held, tmp_path, alone=False)
    with pytest.raises(InputError, match="expected to be the only session"):
        hold_session(tmp_path, alone=True)


@pytest.mark.parametrize("first", [True, False])
def test_a_budget_wants_the_run_alone_and_gets_it_when_others_end(tmp_path: Path, held: ExitStack, first: bool) -> None:
    hold(held, tmp_path, alone=first)
    with pytest.raises(InputError, match="expected to be the only session that asks models"):
        hold_session(tmp_path, alone=not first)
    if first:
        with pytest.raises(InputError, match="found another session"):
            hold_session(tmp_path, alone=True)
    held.close()
    hold(held, tmp_path, alone=not first)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="expected a folder that can be written"):
        hold_session(tmp_path / "file", alone=True)
