"""The tables of ``docs/packs.md``: what each function is, and how it was validated."""

from __future__ import annotations

import re
from pathlib import Path

from ptxbench.errors import InputError
from ptxbench.packs.pack import open_pack, pack_names
from ptxbench.packs.source import read_header
from ptxbench.packs.validation import Claim, executed_share, load_claims, load_evidence, status
from ptxbench.trace.document import read_text

DOCUMENT = Path("docs", "packs.md")
BEGIN = "<!-- tables: written by `ptxbench packs table --write` -->"
END = "<!-- end of tables -->"


def table(root: Path, arch: str) -> list[str]:
    """Lines of Markdown: a heading, a sentence, and a row for each function; for an interim pack the heading and why.

    Raises InputError for a pack that cannot be read.
    """
    opened = open_pack(root, arch)
    heading = f"### {arch}: {opened.file.name} {opened.file.version}"
    if opened.file.interim:
        return [heading, "", "Interim: no claims of its functions yet.", ""]
    definitions = [found for path in opened.headers() for found in read_header(path).definitions]
    claims, evidence = load_claims(opened.folder), load_evidence(root, arch)
    statuses = {name: status(name, claim, definitions, evidence) for name, claim in claims.items()}
    done = sum(executed for executed, _ in statuses.values())
    executed = f"{done} of them ({executed_share(statuses):.0%}) executed on hardware"
    return [
        heading,
        "",
        f"{len(claims)} functions, {executed} by a check that compares values or states.",
        "",
        "| function | PTX | SASS | validated | check | source |",
        "|---|---|---|---|---|---|",
        *(_row(name, claim, statuses[name][1]) for name, claim in claims.items()),
        "",
    ]


def _row(name: str, claim: Claim, how: str) -> str:
    cells = (f"`{name}`", _words(claim.ptx), _words(claim.sass), how, claim.check, claim.source)
    return f"| {' | '.join(cells)} |"


def with_tables(root: Path, text: str) -> str:
    """The document with its tables as they are today. Raises InputError when it lacks the marks around them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{DOCUMENT}: expected the lines {BEGIN!r} and {END!r}; put them around the tables")
    lines = [line for arch in pack_names(root) for line in table(root, arch)]
    return "\n".join((f"{before}{BEGIN}", "", *lines, f"{END}{after}"))


def write_table(root: Path) -> Path:
    """Bring the tables of the document up to date. Returns its path."""
    path = root / DOCUMENT
    path.write_text(with_tables(root, read_text(path)))
    return path


def _words(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{re.sub(r'[|]', '/', word)}`" for word in words) or "none"
