"""Texts of others made fit for records, which name no path of a machine."""

from __future__ import annotations

import re
from pathlib import Path

_QUOTED_PATH = re.compile(r"""(?<=(['"]))/[^'"\n]*(?=\1)""")
_PATH = re.compile(r"(?<![\w:/.~-])/[^\s:;,'\"()<>]+")


def placeless(text: str) -> str:
    """A message without folders of this machine: of each path into one its last part. URLs stay as they are."""
    return _PATH.sub(_last_part, _QUOTED_PATH.sub(_last_part, text))


def _last_part(match: re.Match[str]) -> str:
    path = Path(match[0])
    # What begins in no folder of this machine is a part of something else, such as an address.
    here = len(path.parts) > 2 and Path(*path.parts[:2]).is_dir()
    return path.name if here else match[0]
