"""Code blocks of a pack's texts, and a toolchain to compile them with."""

import re
from pathlib import Path

from tests.unit.factories import ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[str, str]]:
    """Tag and content of each fenced block."""
    return BLOCK.findall(path.read_text())


def templates(arch: str) -> str:
    """All CUDA blocks of a pack's templates, as one file in their order."""
    found = blocks(ROOT / "knowledge_packs" / arch / "templates.md")
    assert {tag for tag, _ in found} == {"cuda"}
    return "".join(content for _, content in found)
