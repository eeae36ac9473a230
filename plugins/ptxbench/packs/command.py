"""The lines that ``ptxbench packs`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ptxbench.cases.names import expect_known
from ptxbench.packs.lint import lint
from ptxbench.packs.pack import LEVELS, Level, load_pack, open_pack, pack_names, render_part
from ptxbench.packs.table import table, write_table
from ptxbench.packs.tokens import count_tokens


class LintLines(NamedTuple):
    """What the lint says, and how many defects it found."""

    lines: tuple[str, ...]
    defects: int


def list_lines(root: Path) -> Iterator[str]:
    """One line for each pack. Raises InputError for one that cannot be read."""
    for arch in pack_names(root):
        opened = open_pack(root, arch)
        interim = ", interim" if opened.file.interim else ""
        schedules = ", ".join(opened.file.schedules)
        yield f"{arch}: {opened.file.name} {opened.file.version}{interim}; schedules: {schedules}"


def rendered(root: Path, arch: str, level: Level, variant: str | None, *, guidance: bool = False) -> str:
    """A pack as a prompt holds it, or one of its schedules. Raises InputError for unknown names."""
    pack = load_pack(root, arch, level, guidance=guidance)
    if variant is None:
        return pack.text
    expect_known("prompt variant", variant, tuple(pack.variants))
    return pack.variants[variant]


def token_lines(root: Path) -> Iterator[str]:
    """Tokens of each part, level and schedule. Raises InputError without a tokenizer."""
    for arch in pack_names(root):
        opened = open_pack(root, arch)
        for part in ("params", "templates", "contracts"):
            yield f"{arch} {part}: {count_tokens(render_part(opened, part)):,}"
        if opened.file.guidance:
            yield f"{arch} guidance: {count_tokens(render_part(opened, 'guidance')):,}"
        for level in LEVELS:
            yield f"{arch} up to {level}: {count_tokens(load_pack(root, arch, level).text):,}"
        for name, text in load_pack(root, arch, "full").variants.items():
            yield f"{arch} schedule {name}: {count_tokens(text):,}"


def lint_lines(root: Path, archs: list[str]) -> LintLines:
    """Defects of some packs, or of all. Raises InputError for unknown names."""
    names = pack_names(root)
    for arch in archs:
        expect_known("arch", arch, names)
    found = [defect for arch in archs or names for defect in lint(root, arch)]
    end = f"{len(found)} defects" if found else "clean"
    return LintLines((*map(str, found), f"{', '.join(archs or names)}: {end}"), len(found))


def table_lines(root: Path, *, write: bool) -> Iterator[str]:
    """The table of every pack that has one, or where it was written to."""
    if write:
        yield f"wrote {write_table(root).relative_to(root)}"
        return
    for arch in pack_names(root):
        yield from table(root, arch)
