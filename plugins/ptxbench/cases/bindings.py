"""``ptxbench.yaml`` in a collection's folder: what its files have no place for. It is optional, and so is every key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ptxbench.cases.case import Positive, Tolerance
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.records import Record
from ptxbench.trace.base import FileName, Loc, Text
from ptxbench.trace.document import Document
from ptxbench.trace.faults import did_you_mean
from ptxbench.trace.links import expect_own

BINDINGS_FILE = "ptxbench.yaml"


class MadeInputs(Record):
    """Inputs that a function in the source of the reference makes, anew for every call, as SOL-ExecBench has them."""

    function: Text
    """Its name. It takes ``arguments`` and a torch device, and returns a dict of tensors by the inputs' names."""
    inputs: Annotated[tuple[Text, ...], Field(min_length=1)]
    arguments: dict[Text, bool | int | float]
    """Sizes of axes and values of scalars, also of such as the definition does not have."""


class CollectionBinding(Record):
    """What one definition, or one of its workloads, is judged by. None: as without the file."""

    definition: FileName
    workload: Text | None = None
    """Its uuid; None: every workload of the definition."""
    tolerance: Tolerance | None = None
    flops: Text | None = None
    bytes: Text | None = None
    shrunk_axes: dict[Text, Positive] | None = None
    made: MadeInputs | None = None


class BindingsFile(Record):
    """The whole file."""

    schema_version: Literal[1]
    bindings: tuple[CollectionBinding, ...]


class Bindings:
    """The bindings of one collection, by definition and workload."""

    def __init__(self, document: Document | None, bindings: Sequence[CollectionBinding]) -> None:
        self.document = document
        self._bindings = bindings

    def of(self, definition: str, workload: str) -> dict[str, object]:
        """Field -> value, of the fields that are given; those of the workload before those of the definition."""
        found: dict[str, object] = {}
        for wanted in (None, workload):
            for binding in self._bindings:
                if binding.definition == definition and binding.workload == wanted:
                    found |= {name: value for name, value in binding if value is not None}
        return {name: value for name, value in found.items() if name not in ("definition", "workload")}

    def error(self, definition: str, workload: str, field: Loc, expected: str, found: str) -> InputError:
        """The error of a value that the file gives: ``field`` leads to it, from the field that ``of`` returned."""
        assert self.document is not None
        where = [
            index
            for wanted in (None, workload)
            for index, binding in enumerate(self._bindings)
            if (binding.definition, binding.workload) == (definition, wanted)
            and getattr(binding, str(field[0])) is not None
        ]
        return self.document.error(("bindings", where[-1], *field), expected, found)


def read_bindings(root: Path, known: Mapping[str, Sequence[str]]) -> Bindings:
    """Read a collection's bindings; none where it has no such file.

    ``known`` are its definitions with the uuids of their workloads. Raises FileError that names file, line and field:
    for a file that breaks the schema, and for names that the collection does not have.
    """
    path = root / BINDINGS_FILE
    if not path.exists():
        return Bindings(None, ())
    document = read_yaml(expect_own(root, path))
    bindings = document.parse(BindingsFile).bindings
    for index, binding in enumerate(bindings):
        _expect(document, ("bindings", index, "definition"), "a definition", binding.definition, tuple(known))
        if binding.workload is not None:
            workloads = known[binding.definition]
            _expect(document, ("bindings", index, "workload"), "a workload's uuid", binding.workload, workloads)
    return Bindings(document, bindings)


def save_bindings(bindings: Sequence[CollectionBinding], root: Path) -> None:
    """Write a collection's bindings; no file where there are none. Raises OSError."""
    if bindings:
        lines = ["schema_version: 1", "bindings:", *(f"  - {_flow(binding)}" for binding in bindings)]
        (root / BINDINGS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _flow(binding: CollectionBinding) -> str:
    """A binding in one line. JSON is YAML, but for characters that YAML takes for line ends or refuses."""
    text = json.dumps(binding.model_dump(mode="json", exclude_none=True), ensure_ascii=False)
    return re.sub("[^\x20-\x7e]", lambda character: f"\\U{ord(character[0]):08x}", text)


def _expect(document: Document, loc: tuple[str | int, ...], what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        found = f"{name!r}.{did_you_mean(name, known)}".removesuffix(".")
        raise document.error(loc, f"{what} of the collection", found)
