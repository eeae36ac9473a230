"""Strict YAML: the part of YAML that says one thing, with line numbers.

Only mappings with unique string keys, lists, quoted strings and plain scalars of the JSON kind (null, true, false,
decimal numbers; anything else plain is a string). Anchors, aliases, tags and several documents are refused, and so
are YAML 1.1's surprises: ``no`` is a string here, ``1:30`` and ``2026-01-01`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ptxbench.trace.base import Loc
from ptxbench.trace.document import Document, Lines, read_text
from ptxbench.trace.faults import FileError, field_name

MAX_DEPTH = 50
"""Levels of nesting. Ours need six; the limit keeps a hostile file from ending in a RecursionError."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, object] = {"": None, "null": None, "~": None, "true": True, "false": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def read_yaml(path: Path) -> Document:
    """A file that is one YAML document of the strict kind described above.

    Raises:
        InputError: unreadable, not YAML, or YAML that is refused; with the line.
    """
    builder = _Builder(path)
    text = read_text(path)
    try:
        data = builder.document(iter(yaml.parse(text, Loader=_LOADER)))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise FileError(path, line, "", "a YAML document", f"{error.problem} {error.context or ''}".strip()) from None
    except yaml.YAMLError as error:
        raise FileError(path, None, "", "a YAML document", str(error)) from None
    return Document(path, data, lambda: builder.lines)


def _scalar(text: str) -> object:
    """Value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Builder:
    """Builds plain data from parser events and records where each key stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: Lines = {}

    def document(self, events: Iterator[yaml.Event]) -> object:
        """The value of the only document."""
        data: object = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if () in self.lines:
                    raise self._refuse(event, (), "one document", "a second document")
                data = self._value(next(events), events, ())
        return data

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], loc: Loc) -> object:
        self.lines.setdefault(loc, _line(event))
        self._check_plain(event, loc)
        if len(loc) > MAX_DEPTH:
            raise self._refuse(event, (), f"nesting of at most {MAX_DEPTH} levels", "more")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, loc)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[object] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._value(item, events, (*loc, len(items))))
            return items
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, loc, "a mapping, list or scalar", type(event).__name__)
        if not event.implicit[0]:
            return str(event.value)
        try:
            return _scalar(event.value)
        except ValueError:
            raise self._refuse(event, loc, "a number", "an integer of too many digits to read") from None

    def _mapping(self, events: Iterator[yaml.Event], loc: Loc) -> dict[str, object]:
        mapping: dict[str, object] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            self._check_plain(event, loc)
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refuse(event, loc, "a string as key", "a mapping or list")
            key = str(event.value)
            if key in mapping:
                found = f"{key!r} again after line {self.lines[(*loc, key)]}"
                raise self._refuse(event, (*loc, key), "each key once", found)
            self.lines[(*loc, key)] = _line(event)
            mapping[key] = self._value(next(events), events, (*loc, key))
        return mapping

    def _check_plain(self, event: yaml.Event, loc: Loc) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._refuse(event, loc, "a value written out", "an anchor or alias")
        if tag := getattr(event, "tag", None):
            raise self._refuse(event, loc, "a value without a tag", f"the tag {tag}")

    def _refuse(self, event: yaml.Event, loc: Loc, expected: str, found: str) -> FileError:
        return FileError(self.path, _line(event), field_name(loc), expected, found)
