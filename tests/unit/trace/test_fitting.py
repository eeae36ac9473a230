"""Whether a workload fits. What is refused with file and field is in tests/acceptance/test_trace_set.py as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxbench.trace import Definition, FileError, Workload
from ptxbench.trace.collection import read_workloads
from ptxbench.trace.fitting import check_blobs, check_fit
from tests.unit.trace import samples

st = pytest.importorskip("safetensors.numpy")
np = pytest.importorskip("numpy")


def checked(
    tmp_path: Path, line: dict[str, Any], definition: dict[str, Any] | None = None
) -> tuple[Definition, Workload]:
    (found,) = read_workloads(samples.write_jsonl(tmp_path / "w.jsonl", line))
    model = Definition.model_validate_json(json.dumps(definition or samples.definition()))
    check_fit(found.document, model, found.trace.workload)
    return model, found.trace.workload


def test_a_workload_that_fits(tmp_path: Path) -> None:
    checked(tmp_path, samples.workload())
    checked(tmp_path, samples.change(samples.workload(), "workload", "axes", to={"M": 4, "D": 8}))
    # The public schema lets a scalar be random.
    checked(tmp_path, samples.change(samples.workload(), "workload", "inputs", "factor", to={"type": "random"}))


@pytest.mark.parametrize(
    ("steps", "value", "field", "expected", "found"),
    [
        (("axes", "M"), 0, "workload.axes.M", "a size of at least 1", "0"),
        (("axes", "M"), 2**31, "workload.axes.M", "a size of at most 2147483647", "2147483648"),
        (("axes", "M"), 10**4000, "workload.axes.M", "a size of at most 2147483647", "1000"),
        (("inputs", "factor", "value"), "NaN", "workload.inputs.factor.value", "a number that is finite", "nan"),
        (("inputs", "factor", "value"), 10**4000, "workload.inputs.factor.value", "a number that is finite", "1000"),
        (("axes",), {}, "workload.axes.M", "a var axis that the definition has", "none"),
        (("axes", "D"), 9, "workload.axes.D", "8, the definition's constant", "9"),
        (("axes", "N"), 9, "workload.axes.N", "a var axis of the definition (M)", "'N'"),
        (("inputs", "Z"), {"type": "random"}, "workload.inputs.Z", "an input of the definition (X, factor)", "'Z'"),
        (("inputs",), {"X": {"type": "random"}}, "workload.inputs.factor", "an input that the definition has", "none"),
        (
            ("inputs", "X"),
            {"type": "scalar", "value": 1},
            "workload.inputs.X.type",
            "random or safetensors",
            "'scalar'",
        ),
        (
            ("inputs", "factor"),
            {"type": "safetensors", "path": "a", "tensor_key": "b"},
            "workload.inputs.factor.type",
            "scalar",
            "'safetensors'",
        ),
    ],
)
def test_refuses(tmp_path: Path, steps: tuple[str, ...], value: object, field: str, expected: str, found: str) -> None:
    with pytest.raises(FileError) as caught:
        checked(tmp_path, samples.change(samples.workload(), "workload", *steps, to=value))
    error = caught.value
    assert (error.file, error.line, error.field) == (tmp_path / "w.jsonl", 1, field)
    assert expected in error.expected
    assert found in error.found


def with_blob(**changes: str) -> dict[str, Any]:
    source = {"type": "safetensors", "path": "./blob/x.safetensors", "tensor_key": "X"} | changes
    line: dict[str, Any] = samples.change(samples.workload(), "workload", "inputs", "X", to=source)
    return line


def blobs_of(tmp_path: Path, line: dict[str, Any], dtype: str = "float16") -> dict[str, str]:
    definition = samples.change(samples.definition(), "inputs", "X", "dtype", to=dtype)
    model, workload = checked(tmp_path, line, definition)
    (found,) = read_workloads(tmp_path / "w.jsonl")
    return check_blobs(found.document, tmp_path, model, workload)


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "blob" / "x.safetensors"
    path.parent.mkdir()
    st.save_file({"X": np.zeros((4, 8), np.float16), "Y": np.zeros((8, 4), np.float16)}, path)
    return path


def test_a_blob_that_fits_is_named_by_its_content(tmp_path: Path, blob: Path) -> None:
    found = blobs_of(tmp_path, with_blob())
    assert list(found) == ["X"]
    st.save_file({"X": np.ones((4, 8), np.float16)}, blob)
    assert blobs_of(tmp_path, with_blob()) != found


def test_workloads_without_blobs_look_at_no_file(tmp_path: Path) -> None:
    assert blobs_of(tmp_path, samples.workload()) == {}


@pytest.mark.parametrize(
    ("changes", "dtype", "field", "expected", "found"),
    [
        ({"path": "blob/y"}, "float16", "path", "a file of the collection", "no such file"),
        ({"path": "blob"}, "float16", "path", "a file that can be read", "Is a directory"),
        ({"tensor_key": "x"}, "float16", "tensor_key", "a tensor of the file: ", "'x'"),
        ({}, "bfloat16", "tensor_key", "a tensor of bfloat16 (BF16)", "F16"),
        ({"tensor_key": "Y"}, "float16", "tensor_key", "a tensor of shape [4, 8]", "[8, 4]"),
    ],
)
def test_refuses_blobs(
    tmp_path: Path, blob: Path, changes: dict[str, str], dtype: str, field: str, expected: str, found: str
) -> None:
    with pytest.raises(FileError) as caught:
        blobs_of(tmp_path, with_blob(**changes), dtype)
    error = caught.value
    assert error.field == f"workload.inputs.X.{field}"
    assert expected in error.expected
    assert found in error.found
    assert str(tmp_path) in error.found


def test_a_blob_outside_of_the_collection(tmp_path: Path, blob: Path) -> None:
    blob.rename(tmp_path.parent / f"{tmp_path.name}.safetensors")
    blob.symlink_to(tmp_path.parent / f"{tmp_path.name}.safetensors")
    with pytest.raises(FileError, match=r"`workload.inputs.X.path`: expected a file in .*; found a link to "):
        blobs_of(tmp_path, with_blob())


def test_a_broken_blob_is_named(tmp_path: Path, blob: Path) -> None:
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"inputs.X.path`: expected data of the tensor 'Y' within the file"):
        blobs_of(tmp_path, with_blob())


def test_data_that_is_shorter_than_its_shape(tmp_path: Path, blob: Path) -> None:
    text = json.dumps({"X": {"dtype": "F16", "shape": [4, 8], "data_offsets": [0, 62]}}).encode()
    blob.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(FileError, match=r"inputs.X.path`: expected 64 bytes of data for the tensor 'X'; found 62"):
        blobs_of(tmp_path, with_blob())
