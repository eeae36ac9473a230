"""Integers that a workload leaves to chance, and its scalars of any element type."""

from __future__ import annotations

import random
from typing import Any

from ptxbench.trace.definition import Definition, DType
from ptxbench.trace.workload import RandomInput, ScalarInput, Workload


def resolved(definition: Definition, workload: Workload) -> Workload:
    """The workload with each random scalar replaced by a value, which follows from the uuid and the input's name.

    The public schema lets a scalar be random; one that changed from run to run would be another workload each time.
    """
    inputs: dict[str, Any] = {}
    for name, source in workload.inputs.items():
        tensor = definition.inputs[name]
        if tensor.shape is None and isinstance(source, RandomInput):
            source = ScalarInput(type="scalar", value=_scalar(f"{workload.uuid} {name}", tensor.dtype))
        inputs[name] = source
    return workload.model_copy(update={"inputs": inputs})


def is_index(dtype: DType) -> bool:
    """Whether values of an element type can say where in another tensor to read."""
    return dtype.value.startswith("int")


def integer_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of a random integer or boolean, the ranges from which FlashInfer-Bench draws too."""
    return {DType.INT8: (-128, 127), DType.BOOL: (0, 1)}.get(DType(dtype), (-1024, 1023))


def _scalar(seed: str, dtype: DType) -> bool | int | float:
    source = random.Random(seed)
    if dtype.value.startswith("float") or dtype is DType.BFLOAT16:
        return source.gauss(0.0, 1.0)
    value = source.randint(*integer_range(dtype))
    return bool(value) if dtype is DType.BOOL else value
