"""Who may ask models within a run at the same time: any number of sessions, or one whose budget counts every call."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ptxbench.agent.files import open_lock
from ptxbench.errors import InputError

SESSION_LOCK = ".session"


def hold_session(folder: Path, *, alone: bool) -> int:
    """Hold the run for one session, until the descriptor is closed or the process dies.

    ``alone`` is for a session with a budget: it reads once what the run has cost and from then on counts its own calls,
    so nobody else may spend meanwhile. Raises InputError where a session at work has or wants the run alone.
    """
    try:
        descriptor = open_lock(folder / SESSION_LOCK)
    except OSError as error:
        raise InputError(
            f"--run {folder}: expected a folder that can be written, found: {error}; choose another name or path"
        ) from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        found = "another session that asks models" if alone else "a session with a budget"
        raise InputError(
            f"--run {folder}: expected to be the only session that asks models, since a budget is of all sessions "
            f"together, found {found} at work on the run; wait for its end, or choose another --run"
        ) from None
    return descriptor
