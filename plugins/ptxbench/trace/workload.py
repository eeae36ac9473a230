"""Workload: a definition with sizes and data sources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ptxbench.records.base import read_non_finite
from ptxbench.trace.base import Count, RelativePath, Text, TraceModel, broken


class RandomInput(TraceModel):
    """Data made at run time; how is the suite's ``input_recipe``."""

    type: Literal["random"]


def _is_scalar(value: object) -> object:
    value = read_non_finite(value)
    if not isinstance(value, (bool, int, float)):
        raise broken((), "a number or a boolean", repr(value))
    return value


class ScalarInput(TraceModel):
    """A value passed by value."""

    type: Literal["scalar"]
    value: Annotated[bool | int | float, BeforeValidator(_is_scalar)]


class SafetensorsInput(TraceModel):
    """One tensor of a safetensors file below the collection's root."""

    type: Literal["safetensors"]
    path: RelativePath
    tensor_key: Text


WorkloadInput = Annotated[RandomInput | ScalarInput | SafetensorsInput, Field(discriminator="type")]


class Workload(TraceModel):
    """Sizes of the var axes and where each input comes from. ``uuid`` is what public results join on."""

    uuid: Text
    axes: dict[Text, Count]
    inputs: dict[Text, WorkloadInput]
