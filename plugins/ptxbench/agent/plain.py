"""Texts of others made fit for files."""

from __future__ import annotations

from typing import TypeVar

from ptxbench.plain import whole
from ptxbench.records import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


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
