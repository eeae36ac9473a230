"""``models.yaml``: the models that can be named on the command line, ours and the user's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN
from ptxbench.models.entry import EntryFields, ModelEntry
from ptxbench.records import Record
from ptxbench.trace.base import Loc
from ptxbench.trace.document import Document
from ptxbench.trace.faults import FileError, did_you_mean

SHIPPED = Path(__file__).with_name("models.yaml")

_ADVICE = "correct the file (docs/models.md describes it)."
_RESERVED = frozenset({"reference"})

Alias = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN.pattern}$")]


class ModelsFile(Record):
    """A models file: entries by name."""

    schema_version: Literal[1] = 1
    models: dict[Alias, EntryFields]


class Catalog:
    """Entries by name."""

    def __init__(self, entries: Mapping[str, ModelEntry]) -> None:
        self._entries = dict(entries)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, ours in our file's order, then the user's own."""
        return tuple(self._entries)

    def entry(self, name: str) -> ModelEntry:
        """The entry of that name. Raises InputError that names the closest one."""
        try:
            return self._entries[name]
        except KeyError:
            raise InputError(
                f"unknown model: expected one of {', '.join(self._entries)}; found {name!r}."
                f"{did_you_mean(name, self.names)} A models file of your own adds names (--models-file)."
            ) from None


def load_catalog(user_file: Path | None = None) -> Catalog:
    """Our catalogue; entries of ``user_file`` are added, and replace ours of the same name whole.

    Relative paths in a user's file are relative to it. Raises InputError with file, line, field, expected and found.
    """
    entries = _read(SHIPPED)
    if user_file is not None:
        entries |= _read(user_file)
    return Catalog(entries)


class _ModelsDocument(Document):
    """Its errors point to the page about models."""

    def error(self, loc: Loc, expected: str, found: str, advice: str = "") -> FileError:
        return super().error(loc, expected, found, advice or _ADVICE)


def _read(path: Path) -> dict[str, ModelEntry]:
    plain = read_yaml(path)
    document = _ModelsDocument(plain.path, plain.data, plain.locate)
    entries = {}
    for name, fields in document.parse(ModelsFile).models.items():
        if name in _RESERVED:
            raise document.error(("models", name), "a name that no other form of --model has", repr(name))
        # Not model_dump: the fields are already what they should be.
        values = {field: getattr(fields, field) for field in EntryFields.model_fields} | _paths(fields, path.parent)
        entries[name] = ModelEntry(name=name, **values)
    return entries


def _paths(fields: EntryFields, folder: Path) -> dict[str, object]:
    """The paths of an entry made independent of where the program runs. A bare program name is left to PATH."""
    found: dict[str, object] = {}
    if fields.folder is not None:
        found["folder"] = str(folder.absolute() / Path(fields.folder).expanduser())
    if fields.command is not None and "/" in fields.command[0]:
        program = str(folder.absolute() / Path(fields.command[0]).expanduser())
        found["command"] = (program, *fields.command[1:])
    return found
