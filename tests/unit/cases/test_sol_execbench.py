"""Problems of SOL-ExecBench in our terms."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ptxbench.cases.sol_execbench import DoesNotFitError, problem_folders, read_problem
from ptxbench.errors import InputError
from ptxbench.trace import FileError, RandomInput, SafetensorsInput
from tests.unit.trace.samples import change, write_json, write_jsonl


def definition() -> dict[str, Any]:
    """Split heads: two expression axes, one over another, and axes that occur in no tensor."""
    return {
        "name": "split_heads",
        "op_type": None,
        "axes": {
            "batch": {"type": "var", "description": None},
            "seq": {"type": "var"},
            "hidden": {"type": "const", "value": 64},
            "heads": {"type": "const", "value": 4},
            "tokens": {"type": "expr", "expression": "batch * seq", "description": None},
            "pairs": {"type": "expr", "expression": "2*tokens"},
            "head_dim": {"type": "expr", "expression": "hidden // heads"},
        },
        "inputs": {
            "x": {"shape": ["tokens", "hidden"], "dtype": "bfloat16", "description": None},
            "y": {"shape": ["pairs"], "dtype": "float32"},
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"out": {"shape": ["tokens", "heads", "head_dim"], "dtype": "bfloat16"}},
        "reference": "def run(x, y, eps):\n    return x",
        "constraints": None,
        "hf_id": "a key that nobody needs",
    }


def workload(**changes: Any) -> dict[str, Any]:
    inputs = {"x": {"type": "random"}, "y": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}}
    return {"uuid": "u1", "axes": {"batch": 2, "seq": 8}, "inputs": inputs, **changes}


def problem(folder: Path, data: dict[str, Any] | None = None, *lines: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "definition.json", data or definition())
    write_jsonl(folder / "workload.jsonl", *(lines or (workload(),)))
    return folder


def test_expressions_become_axes_of_the_workload(tmp_path: Path) -> None:
    found = read_problem(problem(tmp_path, None, workload(), workload(uuid="u2", axes={"batch": 3, "seq": 5})))
    assert found.definition.var_axes == ("tokens", "pairs")
    assert found.definition.const_axes == {"hidden": 64, "heads": 4, "head_dim": 16}
    assert [each.workload.axes for each in found.workloads] == [
        {"tokens": 16, "pairs": 32},
        {"tokens": 15, "pairs": 30},
    ]
    assert found.definition.op_type == "sol_execbench"


def test_tolerances_are_the_workloads_own(tmp_path: Path) -> None:
    tolerance = {"max_atol": 0.5, "required_matched_ratio": 0.99, "max_error_cap": None}
    found = read_problem(problem(tmp_path, None, workload(tolerance=tolerance), workload(uuid="u2")))
    assert [each.tolerance and (each.tolerance.atol, each.tolerance.rtol) for each in found.workloads] == [
        (0.5, 0.01),
        None,
    ]


def test_blobs_and_scalars(tmp_path: Path) -> None:
    source = {"type": "safetensors", "path": "blob/a.safetensors", "tensor_key": "x"}
    found = read_problem(problem(tmp_path, None, change(workload(), "inputs", "x", to=source)))
    assert found.workloads[0].workload.inputs["x"] == SafetensorsInput(**source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "value", "message"),
    [
        (("inputs", "x", "dtype"), "float4_e2m1fn_x2", "`inputs.x.dtype`: expected"),
        (("inputs", "x", "dtype"), "float64", "`inputs.x.dtype`: expected"),
        (
            ("axes", "tokens", "expression"),
            "batch % seq",
            "its axis tokens is 'batch % seq', which cannot be evaluated",
        ),
        (("axes", "tokens", "expression"), "pairs", "its axis tokens is 'pairs'"),
        (("reference",), "x = 1", "`reference`: expected a top-level function `run`"),
        (("name",), "a/b", "`name`: expected a name that can be a file name"),
    ],
)
def test_what_does_not_fit_says_why(tmp_path: Path, steps: tuple[str, ...], value: object, message: str) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        read_problem(problem(tmp_path, change(definition(), *steps, to=value)))
    assert message in str(caught.value)


def test_an_axis_that_only_an_output_has_does_not_fit(tmp_path: Path) -> None:
    data = change(definition(), "inputs", to={"x": {"shape": ["hidden"], "dtype": "int8"}})
    with pytest.raises(DoesNotFitError, match="expected a var axis that occurs in the shape of an input"):
        read_problem(problem(tmp_path, data, workload(inputs={"x": {"type": "random"}})))


def test_inputs_that_a_function_makes(tmp_path: Path) -> None:
    data = change(definition(), "custom_inputs_entrypoint", to="get_inputs")
    data["reference"] += "\ndef get_inputs(sizes, device):\n    return {}"
    line = change(workload(), "inputs", "y", to={"type": "custom"})
    (found,) = read_problem(problem(tmp_path, data, line)).workloads
    assert found.made is not None
    assert (found.made.function, found.made.inputs) == ("get_inputs", ("y",))
    # Also the axes that no tensor has: they are what the function computes with.
    sizes = {"batch": 2, "seq": 8, "hidden": 64, "heads": 4, "tokens": 16, "pairs": 32, "head_dim": 16, "eps": 1e-6}
    assert found.made.arguments == sizes
    assert found.workload.inputs["y"] == RandomInput(type="random")
    with pytest.raises(FileError, match=r"`inputs.y.type`: expected custom_inputs_entrypoint in the definition"):
        read_problem(problem(tmp_path, definition(), line))


@pytest.mark.parametrize(
    ("data", "line", "field"),
    [
        (change(definition(), "axes", "batch", "type", to="free"), workload(), "axes.batch.type"),
        (change(definition(), "inputs", "x", to={"dtype": "int8"}), workload(), "inputs.x.shape"),
        (definition(), workload(axes={"batch": 2}), "axes.seq"),
        (definition(), workload(axes={"batch": 2, "seq": 0}), "axes.seq"),
        (definition(), workload(tolerance={"max_atol": -1.0}), "tolerance.max_atol"),
        (definition(), {"uuid": "u"}, "axes"),
        (change(definition(), "axes", "hidden", to={"type": "const"}), workload(), "axes.hidden.value"),
        (change(definition(), "axes", "pairs", to={"type": "expr"}), workload(), "axes.pairs.expression"),
        (change(definition(), "custom_inputs_entrypoint", to="make"), workload(), "custom_inputs_entrypoint"),
        (definition(), change(workload(), "axes", "other", to=1), "axes.other"),
        (definition(), change(workload(), "axes", "hidden", to=65), "axes.hidden"),
        (definition(), workload(axes={"batch": 2**20, "seq": 2**20}), "axes.tokens"),
        (definition(), change(workload(), "inputs", "eps", to={"type": "scalar"}), "inputs.eps.value"),
        (definition(), change(workload(), "inputs", "eps", "value", to=1e300), "inputs.eps.value"),
        (definition(), workload(inputs={"x": {"type": "random"}, "y": {"type": "random"}}), "inputs.eps"),
        (definition(), change(workload(), "inputs", "z", to={"type": "random"}), "inputs.z"),
        (
            change(definition(), "custom_inputs_entrypoint", to="run"),
            change(workload(), "inputs", "eps", to={"type": "custom"}),
            "inputs.eps.type",
        ),
    ],
)
def test_broken_files_name_file_and_field(tmp_path: Path, data: Any, line: Any, field: str) -> None:
    with pytest.raises(FileError) as caught:
        read_problem(problem(tmp_path, data, line))
    assert caught.value.field == field


def test_a_uuid_twice_and_no_workload_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"workload.jsonl:2: `uuid`: expected each uuid once; .*again after line 1"):
        read_problem(problem(tmp_path, None, workload(), workload(axes={"batch": 1, "seq": 1})))
    (tmp_path / "workload.jsonl").write_text("\n")
    with pytest.raises(FileError, match="expected at least one workload; found none"):
        read_problem(tmp_path)


def test_a_tolerance_that_lets_everything_pass_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFitError, match="`atol`: expected a number less than or equal to 1; found 5"):
        read_problem(problem(tmp_path, None, workload(tolerance={"max_atol": 5.0})))


def test_problems_are_found_at_any_depth(tmp_path: Path) -> None:
    folders = [problem(tmp_path / name) for name in ("L1/001_a", "L2/002_b")]
    assert problem_folders(tmp_path) == tuple(folders)
    assert problem_folders(folders[0]) == (folders[0],)
    with pytest.raises(InputError, match="expected a problem of SOL-ExecBench"):
        problem_folders(tmp_path / "L3")


def test_a_missing_workload_file(tmp_path: Path) -> None:
    folder = problem(tmp_path)
    (folder / "workload.jsonl").unlink()
    with pytest.raises(InputError, match=r"workload.jsonl: expected a readable file"):
        read_problem(folder)
    assert json.loads((folder / "definition.json").read_text())["name"] == "split_heads"


@pytest.mark.parametrize("name", ["definition.json", "workload.jsonl"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = problem(tmp_path / "p") / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match=f"{name}: expected a regular file; found a pipe, socket or device"):
        read_problem(path.parent)
