from __future__ import annotations

import pytest

from ptxbench.errors import InputError
from ptxbench.trace import Definition, DType, FileError, load_definition
from tests.unit.trace import samples


def refusal(tmp_path, data) -> FileError:
    with pytest.raises(FileError) as caught:
        load_definition(samples.write_json(tmp_path / "definition.json", data))
    return caught.value


def load(tmp_path, data) -> Definition:
    return load_definition(samples.write_json(tmp_path / "definition.json", data))


def test_loads(tmp_path):
    definition = load(tmp_path, samples.definition())
    assert definition.const_axes == {"D": 8}
    assert definition.var_axes == ("M",)
    assert definition.inputs["X"].dtype is DType.BFLOAT16
    assert definition.input_shapes({"M": 3}) == {"X": (3, 8), "factor": None}
    assert definition.output_shapes({"M": 3}) == {"Y": (3, 8)}


def test_a_zero_dimensional_tensor_is_not_a_scalar(tmp_path):
    definition = load(tmp_path, samples.change(samples.definition(), "outputs", "Y", "shape", to=[]))
    assert definition.output_shapes({"M": 3}) == {"Y": ()}


def test_null_tags_and_constraints_of_older_collections_are_empty(tmp_path):
    definition = load(tmp_path, {**samples.definition(), "tags": None, "constraints": None})
    assert definition.tags == ()
    assert definition.constraints == ()


def test_is_frozen(tmp_path):
    definition = load(tmp_path, samples.definition())
    with pytest.raises(ValueError, match="frozen"):
        definition.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("steps", "value", "field", "expected", "found"),
    [
        (["name"], "", "name", "a non-empty string", "''"),
        (["name"], "a/b", "name", "file name", "'a/b'"),
        (["op_type"], "../x", "op_type", "file name", "'../x'"),
        (["axes"], {}, "axes", "at least 1 item", "(none)"),
        (["axes", "D", "value"], 0, "axes.D.value", "greater than 0", "0"),
        (["axes", "D", "value"], "8", "axes.D.value", "a valid integer", "'8'"),
        (["axes", "D", "value"], True, "axes.D.value", "a valid integer", "true"),
        (["axes", "D", "type"], "fixed", "axes.D.type", "'const', 'var'", "'fixed'"),
        (["axes", "D"], {"value": 1}, "axes.D.type", "this required key", "no such key"),
        (["axes", "M", "value"], 4, "axes.M.value", "one of the keys type, description", "unknown key 'value'"),
        (["axes", ""], {"type": "var"}, "axes.", "a non-empty string", "''"),
        (["axes", "Z"], {"type": "var"}, "axes.Z", "occurs in the shape of an input", "'Z'"),
        (["inputs"], {}, "inputs", "at least 1 item", "(none)"),
        (["outputs"], {}, "outputs", "at least 1 item", "(none)"),
        (["inputs", "X", "shape", 1], "T", "inputs.X.shape[1]", "M, D", "'T'"),
        (["outputs", "Y", "shape"], ["T"], "outputs.Y.shape[0]", "M, D", "'T'"),
        (["inputs", "X", "dtype"], "bf16", "inputs.X.dtype", "'bfloat16'", "'bf16'"),
        (["inputs", "X"], {"shape": ["M"]}, "inputs.X.dtype", "this required key", "no such key"),
        (["outputs", "X"], {"shape": ["M"], "dtype": "bool"}, "outputs.X", "that no input has", "'X'"),
        (["reference"], "", "reference", "a non-empty string", "''"),
        (["reference"], "def run(:\n", "reference", "Python source", "syntax error"),
        (["reference"], "x = 1\0", "reference", "Python source", "null bytes"),
        (["reference"], "def main(): pass", "reference", "top-level function `run`", "['main']"),
        (["reference"], "class A:\n    def run(self): pass", "reference", "top-level function `run`", "[]"),
        (["constraints"], ["M % 8 == 0", "M >"], "constraints[1]", "a Python expression", "'M >'"),
        (["constraints"], [""], "constraints[0]", "a non-empty string", "''"),
        (["tags"], "x", "tags", "a valid array", "'x'"),
        (["typ"], "misc", "typ", "one of the keys name, op_type", "unknown key 'typ'"),
    ],
)
def test_refuses(tmp_path, steps, value, field, expected, found):
    error = refusal(tmp_path, samples.change(samples.definition(), *steps, to=value))
    assert error.field == field
    assert expected in error.expected
    assert found in error.found
    assert error.line is not None
    for part in (str(error.file), f":{error.line}:", field, error.expected, error.found):
        assert part in str(error)


def test_the_line_is_that_of_the_key(tmp_path):
    path = tmp_path / "definition.json"
    data = samples.change(samples.definition(), "inputs", "X", "dtype", to="bf16")
    samples.write_json(path, data)
    lines = path.read_text().splitlines()
    error = refusal(tmp_path, data)
    assert error.line is not None
    assert '"dtype": "bf16"' in lines[error.line - 1]


def test_a_misspelt_key_is_named_before_the_key_that_is_missing(tmp_path):
    data = samples.definition()
    data["refrence"] = data.pop("reference")
    error = refusal(tmp_path, data)
    assert error.field == "refrence"
    assert "Did you mean 'reference'?" in str(error)
    assert "and 1 more" in error.found


def test_axis_values_needs_every_var_axis(tmp_path):
    definition = load(tmp_path, samples.definition())
    with pytest.raises(InputError, match="none for 'M'"):
        definition.axis_values({})


def test_axis_values_accepts_a_const_axis_that_agrees(tmp_path):
    definition = load(tmp_path, samples.definition())
    assert definition.axis_values({"D": 8, "M": 2}) == {"M": 2, "D": 8}
    with pytest.raises(InputError, match="const axis D = 8, found 9"):
        definition.axis_values({"D": 9, "M": 2})


def test_axis_values_refuses_an_unknown_axis(tmp_path):
    definition = load(tmp_path, samples.definition())
    with pytest.raises(InputError, match="found 'Q'"):
        definition.axis_values({"M": 2, "Q": 1})


def test_every_dtype_has_a_size():
    assert {dtype: dtype.bits for dtype in DType}[DType.FLOAT4_E2M1] == 4
    assert DType.BFLOAT16.bits == 16
