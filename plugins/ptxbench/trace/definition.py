"""Definition: the formal specification of one operation (axes, tensors, reference code)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ptxbench.errors import InputError
from ptxbench.trace.base import FileName, Text, TraceModel, broken
from ptxbench.trace.faults import describe
from ptxbench.trace.python_source import NotPythonError, functions_of, parse_expression, parse_module

MAX_SIZE = 2**31 - 1
"""Of an axis. Extents and coordinates of TMA, grids and most kernels' indices are 32-bit integers; above it a size is a
slip or an attack, and products of such sizes overflow wherever they are computed."""


class DType(StrEnum):
    """Element types of the schema. The values are also torch's names."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT4_E2M1 = "float4_e2m1"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits per element as stored in memory."""
        return _BITS[self]


_BITS = {
    DType.FLOAT32: 32,
    DType.FLOAT16: 16,
    DType.BFLOAT16: 16,
    DType.FLOAT8_E4M3FN: 8,
    DType.FLOAT8_E5M2: 8,
    DType.FLOAT4_E2M1: 4,
    DType.INT64: 64,
    DType.INT32: 32,
    DType.INT16: 16,
    DType.INT8: 8,
    DType.BOOL: 8,
}


def _is_size(value: int) -> int:
    if value > MAX_SIZE:
        raise broken((), f"a size of at most {MAX_SIZE}", describe(value))
    return value


class AxisConst(TraceModel):
    """An axis whose size is part of the definition; a kernel may rely on it."""

    type: Literal["const"]
    value: Annotated[int, Field(gt=0), AfterValidator(_is_size)]
    description: str | None = None


class AxisVar(TraceModel):
    """An axis whose size the workload gives; a kernel must take it from its arguments."""

    type: Literal["var"]
    description: str | None = None


Axis = Annotated[AxisConst | AxisVar, Field(discriminator="type")]


class TensorSpec(TraceModel):
    """One input or output: axis names and element type. ``shape`` None is a scalar, ``()`` a 0-d tensor."""

    shape: tuple[Text, ...] | None
    dtype: DType
    description: str | None = None


class Definition(TraceModel):
    """What is computed. The order of ``inputs`` and ``outputs`` is the order of the kernel's arguments."""

    name: FileName
    op_type: FileName
    axes: Annotated[dict[Text, Axis], Field(min_length=1)]
    inputs: Annotated[dict[Text, TensorSpec], Field(min_length=1)]
    outputs: Annotated[dict[Text, TensorSpec], Field(min_length=1)]
    reference: Text
    """Python source with a top-level ``run(*inputs)`` that returns the output, or a tuple of the outputs in order."""
    tags: tuple[Text, ...] = ()
    description: str | None = None
    constraints: tuple[Text, ...] = ()
    """Python expressions over axes and inputs, documentation for kernel writers; never evaluated."""

    @field_validator("tags", "constraints", mode="before")
    @classmethod
    def _null_is_empty(cls, value: object) -> object:
        """Older collections write null where newer ones write an empty list."""
        return tuple(value or ()) if value is None or isinstance(value, list) else value

    @field_validator("reference")
    @classmethod
    def _defines_run(cls, reference: str) -> str:
        try:
            names = functions_of(parse_module(reference))
        except NotPythonError as error:
            raise broken((), "Python source", str(error)) from None
        if "run" not in names:
            raise broken((), "a top-level function `run`", f"top-level functions {list(names)}")
        return reference

    @field_validator("constraints")
    @classmethod
    def _constraints_parse(cls, constraints: tuple[str, ...]) -> tuple[str, ...]:
        for index, constraint in enumerate(constraints):
            try:
                parse_expression(constraint)
            except NotPythonError as error:
                raise broken((index,), "a Python expression", f"{constraint[:80]!r} ({error})") from None
        return constraints

    @model_validator(mode="after")
    def _axes_and_tensors_agree(self) -> Self:
        for group, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name, tensor in tensors.items():
                for index, axis in enumerate(tensor.shape or ()):
                    if axis not in self.axes:
                        expected = f"an axis declared in axes ({', '.join(self.axes)})"
                        raise broken((group, name, "shape", index), expected, repr(axis))
        for name in self.outputs:
            if name in self.inputs:
                raise broken(("outputs", name), "output names that no input has", repr(name))
        bound = {axis for tensor in self.inputs.values() for axis in tensor.shape or ()}
        for name in self.var_axes:
            if name not in bound:
                expected = "a var axis that occurs in the shape of an input, so that a kernel can read it"
                raise broken(("axes", name), expected, f"{name!r}, which occurs in none")
        return self

    @property
    def const_axes(self) -> dict[str, int]:
        """Const axes and their sizes."""
        return {name: axis.value for name, axis in self.axes.items() if isinstance(axis, AxisConst)}

    @property
    def var_axes(self) -> tuple[str, ...]:
        """Names of the var axes, in definition order."""
        return tuple(name for name, axis in self.axes.items() if isinstance(axis, AxisVar))

    def axis_values(self, axes: Mapping[str, int]) -> dict[str, int]:
        """Sizes of all axes, given those of the var axes.

        Public collections repeat const axes in their workloads; that is accepted when the values agree.

        Raises:
            InputError: a var axis is missing, an axis is unknown, or a const axis has another value.
        """
        for name in self.var_axes:
            if name not in axes:
                raise InputError(
                    f"{self.name}: expected a value for each var axis ({', '.join(self.var_axes)}), "
                    f"found none for {name!r}; add it to the workload's axes."
                )
        values = self.const_axes
        for name, value in axes.items():
            if name not in self.axes:
                raise InputError(
                    f"{self.name}: expected values of the axes {', '.join(self.axes)}, found {name!r}; remove it."
                )
            if values.setdefault(name, value) != value:
                raise InputError(
                    f"{self.name}: expected const axis {name} = {values[name]}, found {value}; "
                    "remove it from the workload's axes."
                )
        return {name: values[name] for name in self.axes}

    def input_shapes(self, axes: Mapping[str, int]) -> dict[str, tuple[int, ...] | None]:
        """Concrete input shapes in definition order; None for scalars. Raises InputError as ``axis_values``."""
        return self._shapes(self.inputs, axes)

    def output_shapes(self, axes: Mapping[str, int]) -> dict[str, tuple[int, ...] | None]:
        """Concrete output shapes in definition order; None for scalars. Raises InputError as ``axis_values``."""
        return self._shapes(self.outputs, axes)

    def _shapes(self, tensors: Mapping[str, TensorSpec], axes: Mapping[str, int]) -> dict[str, tuple[int, ...] | None]:
        values = self.axis_values(axes)
        return {
            name: None if tensor.shape is None else tuple(values[axis] for axis in tensor.shape)
            for name, tensor in tensors.items()
        }
