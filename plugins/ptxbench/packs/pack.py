"""A pack is data: ``knowledge_packs/<arch>/pack.yaml`` and the texts that it names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from string import Template
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from ptxbench.cases import Arch, load_arch
from ptxbench.cases.names import expect_known
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.packs.source import HEADER_SUFFIX, read_header, render_header
from ptxbench.records import Record, Sha256
from ptxbench.trace import FileError
from ptxbench.trace.base import Loc, RelativePath, Text
from ptxbench.trace.document import Document, read_text

Level = Literal["params", "templates", "full"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Knowledge levels for ablation, each with all that the ones before it have (PROTOCOL 6)."""

PACK_FILE = "pack.yaml"

_HEADINGS = {
    "params": "## Architecture parameters",
    "templates": "## Templates",
    "contracts": "## Contracts",
    "guidance": "## Expert guidance",
}
_WITHOUT_TEMPLATES = (
    "(This prompt holds no templates. Names of functions below stand for wrappers of the PTX instruction that the name "
    "says; you write them yourself.)"
)

Files = Annotated[tuple[RelativePath, ...], Field(min_length=1)]


class PackFile(Record):
    """The content of ``pack.yaml``. Texts are files below its folder, in the order in which they are sent."""

    name: Text
    version: Text
    """Raised with every change of a text, the schedules included."""
    interim: bool
    """A stand-in; every prompt says so."""
    params: Files
    templates: Files
    """Markdown, or headers (``.cuh``): each after those that it includes."""
    contracts: Files
    schedules: dict[Text, Files]
    """Prompt variant -> the texts that it adds to the prompt."""
    guidance: tuple[RelativePath, ...] = ()
    """What an expert would tell beside the facts: a section of its own, which no level has and a run asks for."""


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


class PackFolder(NamedTuple):
    """An architecture's pack as it lies on disk."""

    folder: Path
    arch: Arch
    document: Document
    file: PackFile

    def paths(self, part: str) -> tuple[Path, ...]:
        """The files of a part: ``params``, ``templates``, ``contracts`` or ``guidance``.

        Raises InputError for one that does not exist.
        """
        return self._existing((part,), getattr(self.file, part))

    def schedule_paths(self) -> dict[str, tuple[Path, ...]]:
        """Prompt variant -> its files. Raises InputError for one that does not exist."""
        return {name: self._existing(("schedules", name), files) for name, files in self.file.schedules.items()}

    def headers(self) -> tuple[Path, ...]:
        """The headers among the templates, in order."""
        return tuple(path for path in self.paths("templates") if path.suffix == HEADER_SUFFIX)

    def _existing(self, loc: Loc, names: tuple[str, ...]) -> tuple[Path, ...]:
        for index, name in enumerate(names):
            if not (self.folder / name).is_file():
                raise self.document.error(
                    (*loc, index), "a text below the folder of pack.yaml", f"{name!r}, which does not exist"
                )
        return tuple(self.folder / name for name in names)


def pack_names(root: Path) -> tuple[str, ...]:
    """Architectures of a checkout that have a pack."""
    return tuple(sorted(path.parent.name for path in (root / "knowledge_packs").glob(f"*/{PACK_FILE}")))


def open_pack(root: Path, arch: str) -> PackFolder:
    """Read ``pack.yaml`` of an architecture of the checkout ``root``.

    Raises:
        InputError: no such architecture, no pack, or one that breaks the schema.
    """
    described = load_arch(root, arch)
    folder = root / "knowledge_packs" / arch
    if not (folder / PACK_FILE).is_file():
        raise InputError(
            f"{folder / PACK_FILE}: expected the knowledge pack of {arch}, found no such file; "
            "restore it (docs/packs.md describes packs)"
        )
    document = read_yaml(folder / PACK_FILE)
    return PackFolder(folder, described, document, document.parse(PackFile))


def load_pack(root: Path, arch: str, level: Level, *, guidance: bool = False) -> Pack:
    """Read the pack of an architecture of the checkout ``root``; with ``guidance`` its section of that comes last.

    Raises:
        InputError: no such architecture or level, no pack, one that breaks the schema or lacks a text, or no guidance
            where that was asked for.
    """
    expect_known("knowledge level", level, LEVELS)
    opened = open_pack(root, arch)
    parts = ("params", "templates", "contracts")[: LEVELS.index(level) + 1]
    if guidance:
        if not opened.file.guidance:
            raise opened.document.error(("guidance",), "texts of expert guidance, since they were asked for", "none")
        parts = (*parts, "guidance")
    text = "\n\n".join((_title(opened), *(render_part(opened, part) for part in parts))) + "\n"
    note = () if opened.file.interim or level != "params" else (_WITHOUT_TEMPLATES,)
    return Pack(
        name=opened.file.name,
        version=opened.file.version,
        level=level,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        interim=opened.file.interim,
        variants={
            name: "\n\n".join((*note, *(_text(path) for path in paths)))
            for name, paths in opened.schedule_paths().items()
        },
    )


def render_part(opened: PackFolder, part: str) -> str:
    """One section of the pack, ``params``, ``templates``, ``contracts`` or ``guidance``, with its heading."""
    sections: list[str] = []
    included: set[str] = set()
    for path in opened.paths(part):
        if part == "params":
            sections.append(_filled(path, opened.arch))
        elif path.suffix == HEADER_SUFFIX:
            sections.append(render_header(read_header(path), included))
        else:
            sections.append(_text(path))
    text = "\n\n".join(sections)
    return text if text.startswith("## ") else f"{_HEADINGS[part]}\n\n{text}"


def _title(opened: PackFolder) -> str:
    file = opened.file
    kind = "interim knowledge pack, a short stand-in" if file.interim else "knowledge pack"
    return f"# {opened.arch.title}: {kind} ({file.name} {file.version})"


def _text(path: Path) -> str:
    text = read_text(path).strip()
    if not text:
        raise FileError(path, None, "", "a text", "nothing")
    return text


def _filled(path: Path, arch: Arch) -> str:
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
