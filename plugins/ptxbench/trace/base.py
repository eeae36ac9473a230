"""The base and the shared field types of the FlashInfer-Trace models."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ptxbench.records import Record

Loc = tuple[str | int, ...]
"""Where in a document: keys and list indices from the root."""


class TraceModel(Record):
    """Base of the schema's models: frozen, strict, unknown keys rejected, non-finite floats written as strings."""

    # The schema has them in places; a model that has not says so itself.
    model_config = ConfigDict(allow_inf_nan=True)


MOST_QUOTED = 1000
"""Characters that an error repeats of what was expected or found. It may be megabytes, and the error an answer."""


def broken(field: Loc, expected: str, found: str) -> PydanticCustomError:
    """The error of a rule that pydantic cannot express; ``field`` is relative to the model that raises it."""
    context = {"field": field, "expected": _quoted(expected), "found": _quoted(found)}
    return PydanticCustomError("broken_rule", "expected {expected}, found {found}", context)


def _quoted(text: str) -> str:
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}... ({len(text)} characters)"


def _has_text(value: str) -> str:
    if not value.strip():
        raise broken((), "a non-empty string", repr(value))
    return value


def _is_file_name(value: str) -> str:
    _has_text(value)
    if value in (".", "..") or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in value):
        raise broken((), "a name that can be a file name (no path separators, no reserved characters)", repr(value))
    return value


def _is_relative_path(value: str) -> str:
    _has_text(value)
    unsafe = value.startswith("/") or "\\" in value or ":" in value or any(ord(c) < 32 for c in value)
    parts = PurePosixPath(value).parts
    if unsafe or not parts or ".." in parts or value.endswith("/"):
        expected = "a relative path below its root, with / as separator, without '..', backslash or drive"
        raise broken((), expected, repr(value))
    return value


Text = Annotated[str, AfterValidator(_has_text)]
"""A string that holds more than white space."""

FileName = Annotated[str, AfterValidator(_is_file_name)]
"""A name that the collection's layout uses as a file or folder name."""

RelativePath = Annotated[str, AfterValidator(_is_relative_path)]
"""A POSIX path that stays below the folder it is joined to, whatever the operating system."""

Count = Annotated[int, Field(ge=0)]
"""A non-negative integer."""
