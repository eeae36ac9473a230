"""A pack is data: ``knowledge_packs/<arch>/pack.yaml`` and the texts that it names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from string import Template
from typing import Annotated, Literal, get_args

from pydantic import Field

from ptxbench.cases import Arch, load_arch
from ptxbench.cases.names import expect_known
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.records import Record, Sha256
from ptxbench.trace import FileError
from ptxbench.trace.base import FileName, Text
from ptxbench.trace.document import read_text

Level = Literal["params", "templates", "full"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Knowledge levels for ablation, each with all that the ones before it have (PROTOCOL 6)."""

PACK_FILE = "pack.yaml"
VARIANTS_FOLDER = "variants"

Files = Annotated[tuple[FileName, ...], Field(min_length=1)]


class PackFile(Record):
    """The content of ``pack.yaml``. Texts are files beside it, in the order in which they are sent."""

    name: Text
    version: Text
    """Raised with every change of a text, the variants' included."""
    interim: bool
    """A stand-in; every prompt says so."""
    params: Files
    templates: Files
    contracts: Files


class Pack(Record):
    """A pack at one level, as it is sent."""

    name: str
    version: str
    level: Level
    text: str
    sha256: Sha256
    """Of ``text``."""
    interim: bool
    variants: dict[str, str] = Field(default_factory=dict)
    """Prompt variant -> what it adds to the prompt. ``none`` adds nothing and is not among them."""


def load_pack(root: Path, arch: str, level: Level) -> Pack:
    """Read the pack of an architecture of the checkout ``root``.

    Raises:
        InputError: no such architecture or level, no pack, or one that breaks the schema or lacks a text.
    """
    expect_known("knowledge level", level, LEVELS)
    described = load_arch(root, arch)
    folder = root / "knowledge_packs" / arch
    if not (folder / PACK_FILE).is_file():
        raise InputError(
            f"{folder / PACK_FILE}: expected the knowledge pack of {arch}, found no such file; "
            "restore it (docs/prompts.md describes packs)"
        )
    document = read_yaml(folder / PACK_FILE)
    file = document.parse(PackFile)
    sections: list[str] = []
    for name in ("params", "templates", "contracts")[: LEVELS.index(level) + 1]:
        for index, text_name in enumerate(getattr(file, name)):
            path = folder / text_name
            if not path.is_file():
                raise document.error((name, index), "a text beside pack.yaml", f"{text_name!r}, which does not exist")
            sections.append(_rendered(path, described) if name == "params" else _text(path))
    text = "\n\n".join((_title(file, described), *sections)) + "\n"
    return Pack(
        name=file.name,
        version=file.version,
        level=level,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        interim=file.interim,
        variants={path.stem: _text(path) for path in sorted((folder / VARIANTS_FOLDER).glob("*.md"))},
    )


def _title(file: PackFile, arch: Arch) -> str:
    kind = "interim knowledge pack, a short stand-in" if file.interim else "knowledge pack"
    return f"# {arch.title}: {kind} ({file.name} {file.version})"


def _text(path: Path) -> str:
    text = read_text(path).strip()
    if not text:
        raise FileError(path, None, "", "a text", "nothing")
    return text


def _rendered(path: Path, arch: Arch) -> str:
    """A text with ``$field`` filled in from ``arch.yaml``, so that no number stands in two places."""
    fields = {
        **{name: getattr(arch, name) for name in ("title", "sm", "gencode", "bf16_flops_per_clock_per_sm")},
        "compute_capability": "{}.{}".format(*arch.compute_capability),
        "sources": "; ".join(arch.sources),
    }
    text = _text(path)
    try:
        return Template(text).substitute(fields)
    except (KeyError, ValueError) as error:
        found = f"the placeholder ${error.args[0]}" if isinstance(error, KeyError) else f"a bare $ ({error})"
        raise FileError(path, None, "", f"placeholders among ${', $'.join(fields)}", found) from None
