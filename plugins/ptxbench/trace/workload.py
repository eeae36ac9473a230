"""Workload: a definition with sizes and data sources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ptxbench.errors import InputError
from ptxbench.records.base import read_non_finite
from ptxbench.trace.base import Count, RelativePath, Text, TraceModel, broken
from ptxbench.trace.definition import Definition


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


def bind(definition: Definition, workload: Workload) -> dict[str, int]:
    """Sizes of all axes of ``definition`` under ``workload``.

    Raises:
        InputError: the workload's axes or inputs are not those of the definition, or a scalar is given as a
            tensor or the reverse.
    """
    axes = definition.axis_values(workload.axes)
    if set(workload.inputs) != set(definition.inputs):
        raise InputError(
            f"workload {workload.uuid}: expected the inputs of {definition.name} ({', '.join(definition.inputs)}), "
            f"found {', '.join(workload.inputs) or 'none'}; list each input once."
        )
    for name, tensor in definition.inputs.items():
        source = workload.inputs[name]
        if (tensor.shape is None) != isinstance(source, ScalarInput):
            kind = "a scalar" if tensor.shape is None else "a tensor"
            raise InputError(
                f"workload {workload.uuid}: expected {kind} for input {name!r} of {definition.name}, "
                f"found type {source.type!r}; change its type."
            )
    return axes
