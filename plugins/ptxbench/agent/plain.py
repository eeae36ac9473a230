"""Texts of others made fit for files and terminals."""

from __future__ import annotations

import re
from typing import TypeVar

from ptxbench.records import Record
from ptxbench.records.conversation import storable as whole

AnyRecord = TypeVar("AnyRecord", bound=Record)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """A message in characters that a terminal shows and a file holds: controls but tabs and line ends as ``\\x1b``."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", whole(text))


def storable(record: AnyRecord) -> AnyRecord:
    """The record with ``whole`` applied to each of its texts."""
    return type(record).model_validate(_mapped(record.model_dump()))


def _mapped(value: object) -> object:
    match value:
        case str() if type(value) is str:
            return whole(value)
        case dict():
            return {_mapped(key): _mapped(inner) for key, inner in value.items()}
        case list():
            return [_mapped(inner) for inner in value]
        case tuple():
            return tuple(_mapped(inner) for inner in value)
        case _:
            return value
