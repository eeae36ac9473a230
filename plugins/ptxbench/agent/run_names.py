"""How runs are named on the command line."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from ptxbench.errors import InputError


def resolve_run(root: Path, text: str) -> Path:
    """The folder that ``--run`` names: a path if it looks like one, else ``generated/NAME`` of the checkout.

    Raises InputError for no name at all and, however they are written, for the folder of the reference solutions and
    for the one that holds the example runs, each of which can be resumed.
    """
    if os.sep in text or text.startswith((".", "~")):
        folder = Path(os.path.abspath(os.path.expanduser(text)))
    else:
        folder = root / "generated" / text
    place, generated = folder.resolve(), root / "generated"
    taken = place.is_relative_to((generated / "reference").resolve()) or place == (generated / "examples").resolve()
    if not text.strip() or taken:
        raise InputError(f"--run {text!r}: expected a name of a run or a path; this one is reserved, choose another")
    return folder


def fresh_run_name(now: datetime) -> str:
    """The name of a run that the user did not name: UTC, to the millisecond, so that it sorts by time."""
    return now.astimezone(UTC).strftime("run-%Y%m%dT%H%M%S") + f"{now.microsecond // 1000:03d}Z"
