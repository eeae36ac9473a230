"""The real data, and copies of it that a test may break."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def copy(folder: Path) -> Path:
    """A checkout with the data only."""
    shutil.copytree(ROOT / "cases", folder / "cases")
    for path in (ROOT / "knowledge_packs").glob("*/arch.yaml"):
        target = folder / "knowledge_packs" / path.parent.name / path.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(path, target)
    return folder


def edit(path: Path, old: str, new: str) -> int:
    """Replace the first ``old`` in ``path``; the line of the change, counted from 1."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1
