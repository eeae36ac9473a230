from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from ptxbench.trace import Workload
from tests.unit.trace import samples


def workload(**inputs: object) -> Workload:
    data = samples.workload()["workload"]
    return Workload.model_validate_json(json.dumps({**data, "inputs": inputs or data["inputs"]}))


@pytest.mark.parametrize("value", [True, 3, 2.5, math.inf])
def test_scalars_keep_their_kind(value):
    written = workload(X={"type": "random"}, factor={"type": "scalar", "value": 1})
    scalar = written.inputs["factor"].model_copy(update={"value": value})
    read = type(written.inputs["factor"]).model_validate_json(scalar.model_dump_json())
    assert (type(read.value), read.value) == (type(value), value)  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["1", None, [1]])
def test_scalars_are_numbers(value):
    with pytest.raises(ValidationError, match="a number or a boolean"):
        workload(factor={"type": "scalar", "value": value})


@pytest.mark.parametrize("path", ["/abs/x", "../x", "a\\b", "C:x"])
def test_safetensors_paths_stay_in_the_collection(path):
    with pytest.raises(ValidationError, match="a relative path"):
        workload(X={"type": "safetensors", "path": path, "tensor_key": "X"})


def test_axes_are_not_negative():
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Workload.model_validate_json('{"uuid": "u", "axes": {"M": -1}, "inputs": {}}')
