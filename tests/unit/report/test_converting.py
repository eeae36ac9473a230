"""Problems of SOL-ExecBench, converted and bound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler.inputs import InputSource
from ptxbench.report.converting import convert_problems
from ptxbench.trace import FileError
from tests.support.trace_sets import ROOT
from tests.unit.cases.test_sol_execbench import definition, problem, workload
from tests.unit.trace.samples import change

MAKING = """
import torch

def get_inputs(axes_and_scalars, device):
    return {"y": torch.rand(axes_and_scalars["pairs"], device=device) + axes_and_scalars["seq"]}

def run(x, y, eps):
    return x.view(-1, 4, 16)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two problems, one of them with a blob, and one that does not fit."""
    folder = tmp_path / "sol"
    tolerance = {"max_atol": 0.05, "max_rtol": 0.02, "required_matched_ratio": 0.99}
    problem(folder / "L1" / "001_heads", None, workload(tolerance=tolerance), workload(uuid="u2"))
    blob = {"type": "safetensors", "path": "blob/y.safetensors", "tensor_key": "y"}
    named = change(definition(), "name", to="with_blob")
    problem(folder / "L1" / "002_blob", named, change(workload(), "inputs", "y", to=blob))
    header = json.dumps({"y": {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}}).encode()
    (folder / "blob").mkdir()
    (folder / "blob" / "y.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
    custom = change(definition(), "custom_inputs_entrypoint", to="get_inputs") | {"name": "made"}
    custom["reference"] = MAKING
    problem(folder / "L2" / "001_custom", custom, change(workload(), "inputs", "y", to={"type": "custom"}))
    problem(folder / "L2" / "003_double", change(definition(), "inputs", "y", "dtype", to="float64") | {"name": "z"})
    return folder


def test_what_fits_is_a_collection(source: Path, tmp_path: Path) -> None:
    found = convert_problems(source, tmp_path / "out")
    assert (found.definitions, found.workloads) == (3, 4)
    (left_out,) = found.left_out
    assert "003_double is left out: `inputs.y.dtype`" in left_out
    suite = load_collections(ROOT, [tmp_path / "out"]).suite
    cases = {case.name: case for case in suite.cases("b200")}
    assert {name: case.axes["tokens"] for name, case in cases.items()} == dict.fromkeys(
        ("split_heads.u1", "split_heads.u2", "with_blob", "made"), 16
    )
    assert (cases["split_heads.u1"].tolerance.atol, cases["split_heads.u1"].tolerance.rtol) == (0.05, 0.02)
    assert cases["split_heads.u2"].tolerance.atol == 0.01
    assert cases["with_blob"].baseline.call == "definition.reference"
    assert (tmp_path / "out" / "blob" / "y.safetensors").read_bytes() == (
        source / "blob" / "y.safetensors"
    ).read_bytes()


def test_a_function_makes_inputs_anew_for_every_draw(source: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convert_problems(source, tmp_path / "out")
    case = load_collections(ROOT, [tmp_path / "out"], ["made"]).suite.cases("h100")[0]
    inputs = InputSource(case)
    assert inputs.derived == ("y",)
    first, second = (inputs.make(inputs.keep(), "cpu") for _ in range(2))
    assert set(first) == {"x", "y"}
    assert not torch.equal(first["y"], second["y"])
    assert float(first["y"].min()) >= 8.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"pairs"]', '"seq"]', r"input y: ValueError: expected \(\(32,\), 'torch.float32'\), found \(\(8,\)"),
        ('"y":', '"z":', "its inputs cannot be made: KeyError: 'y'"),
    ],
)
def test_a_function_that_does_not_do_it(source: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    pytest.importorskip("torch")
    path = source / "L2" / "001_custom" / "definition.json"
    data = json.loads(path.read_text())
    data["reference"] = data["reference"].replace(old, new, 1)
    path.write_text(json.dumps(data))
    convert_problems(source, tmp_path / "out")
    case = load_collections(ROOT, [tmp_path / "out"], ["made"]).suite.cases("h100")[0]
    inputs = InputSource(case)
    with pytest.raises(InfrastructureError, match=message) as caught:
        inputs.make(inputs.keep(), "cpu")
    assert caught.value.kind == "reference_failed"


def absent(blob: Path) -> None:
    blob.unlink()


def another(blob: Path) -> None:
    blob.write_text("no tensors")


def elsewhere(blob: Path) -> None:
    blob.rename(blob.parents[2] / "y")
    blob.symlink_to(blob.parents[2] / "y")


@pytest.mark.parametrize(
    ("change_it", "message"),
    [
        (absent, r"expected a file in .*002_blob or above it; found none of the name blob/y.safetensors"),
        (another, r"expected a safetensors file; found"),
        (elsewhere, r"expected a file in .*; found a link to"),
    ],
)
def test_a_blob_that_is_not_what_the_workload_wants(
    source: Path, tmp_path: Path, change_it: Callable[[Path], None], message: str
) -> None:
    blob = source / "blob" / "y.safetensors"
    kept = blob.read_bytes()
    change_it(blob)
    with pytest.raises(FileError, match=rf"002_blob/workload.jsonl:1: `inputs.y.path`: {message}"):
        convert_problems(source, tmp_path / "out")
    # Nothing is left that would stand in the way of the next attempt.
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "y") == ["sol"]
    blob.unlink(missing_ok=True)
    blob.write_bytes(kept)
    assert convert_problems(source, tmp_path / "out").definitions == 3


def test_two_blobs_of_one_path(source: Path, tmp_path: Path) -> None:
    folder = source / "L1" / "002_blob"
    (folder / "blob").mkdir()
    shutil.copyfile(source / "blob" / "y.safetensors", folder / "blob" / "y.safetensors")
    blob = {"type": "safetensors", "path": "./blob/y.safetensors", "tensor_key": "y"}
    other = change(definition(), "name", to="other")
    problem(source / "L2" / "004", other, change(workload(), "inputs", "y", to=blob))
    with pytest.raises(FileError, match=r"004/workload.jsonl:1: `inputs.y.path`: expected a path that no other"):
        convert_problems(source, tmp_path / "out")


def test_names_that_yaml_would_misread(source: Path, tmp_path: Path) -> None:
    uuid = "a\u2028b\x85c\x7fd \U0001f600 'e' \"f\" # g: {"
    problem(source / "L1" / "001_heads", None, workload(uuid=uuid, tolerance={"max_atol": 0.5}))
    convert_problems(source, tmp_path / "out")
    (case,) = load_collections(ROOT, [tmp_path / "out"], ["split_heads"]).suite.cases("h100")
    assert (case.workload.uuid, case.tolerance.atol) == (uuid, 0.5)


def test_where_nothing_fits_nothing_is_written(source: Path, tmp_path: Path) -> None:
    assert convert_problems(source / "L2" / "003_double", tmp_path / "out").definitions == 0
    assert not (tmp_path / "out").exists()


def test_two_problems_of_one_name(source: Path, tmp_path: Path) -> None:
    problem(source / "L2" / "002_again")
    with pytest.raises(InputError, match=r"002_again: expected another name than 'split_heads', found it again after"):
        convert_problems(source, tmp_path / "out")


def test_nothing_is_written_over(source: Path) -> None:
    with pytest.raises(InputError, match="expected a new or empty folder"):
        convert_problems(source, source)
