"""Inputs from files and random integers, on the CPU. How they are staged: tests/gpu/test_trace_set.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxbench.cases import Case, load_suite
from ptxbench.cases.bindings import BINDINGS_FILE
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.given_inputs import GivenInputs, given_names
from ptxbench.profiler.inputs import InputSource
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.state import reference_outputs
from tests.support.trace_sets import (
    RMSNORM,
    RMSNORM_DEFINITION,
    RMSNORM_WORKLOADS,
    ROOT,
    SMALL,
    blob,
    copy_small,
    edit_json,
    edit_line,
)

torch = pytest.importorskip("torch")


def load(folder: Path = SMALL, uuid: str = "d9") -> Case:
    return load_collections(ROOT, [folder], [f"{RMSNORM}*"]).suite.cases("h100")[0 if uuid == "d9" else 1]


def test_only_collections_have_them() -> None:
    assert given_names(load()) == ("weight",)
    assert given_names(load(uuid="f5")) == ()
    for name in ("primary", "generalization"):
        assert {given_names(case) for case in load_suite(ROOT, name).table} == {()}


def test_a_blob_is_what_its_file_holds() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    given = GivenInputs(load(), "cpu")
    weight = given.tensors()["weight"]
    assert torch.equal(weight, safetensors.load_file(blob(SMALL))["weight"])
    assert (weight.dtype, weight.shape) == (torch.bfloat16, (2048,))
    assert given.tensors()["weight"] is weight


@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_file_that_is_another_now_is_nobodys_fault(tmp_path: Path, how: str) -> None:
    collection = copy_small(tmp_path)
    case = load(collection)
    if how == "missing":
        blob(collection).unlink()
    else:
        blob(collection).write_bytes(blob(collection).read_bytes()[:-1] + b"\x01")
    with pytest.raises(InfrastructureError, match=r"input weight of .*restore the file") as caught:
        GivenInputs(case, "cpu")
    assert caught.value.kind == "reference_failed"


@pytest.mark.parametrize(("dtype", "least", "most"), [("int32", -1024, 1023), ("int8", -128, 127), ("bool", 0, 1)])
def test_integers_are_drawn_anew_from_the_schemas_range(tmp_path: Path, dtype: str, least: int, most: int) -> None:
    collection = copy_small(tmp_path)
    edit_json(collection / RMSNORM_DEFINITION, lambda d: d["inputs"]["weight"].update(dtype=dtype))
    edit_line(collection / RMSNORM_WORKLOADS, lambda w: w["workload"]["inputs"].update(weight={"type": "random"}))
    given = GivenInputs(load(collection), "cpu")
    first, second = given.tensors()["weight"], given.tensors()["weight"]
    assert str(first.dtype) == f"torch.{dtype}"
    assert not torch.equal(first, second)
    assert least <= int(first.min()) <= int(first.max()) <= most
    assert int(first.max()) > int(first.min())


@pytest.mark.parametrize(("dtype", "fits"), [("bfloat16", True), ("float32", False)])
def test_what_a_function_makes_is_what_the_definition_wants(tmp_path: Path, dtype: str, fits: bool) -> None:
    collection = copy_small(tmp_path)
    making = f"\ndef make(sizes, device):\n    return {{'weight': torch.ones(sizes['n'], dtype=torch.{dtype})}}\n"
    edit_json(collection / RMSNORM_DEFINITION, lambda d: d.update(reference=d["reference"] + making))
    made = "{function: make, inputs: [weight], arguments: {n: 2048}}"
    (collection / BINDINGS_FILE).write_text(
        f"schema_version: 1\nbindings:\n  - {{definition: {RMSNORM}, made: {made}}}\n"
    )
    given = GivenInputs(load(collection, "f5"), "cpu")
    if fits:
        assert int(given.tensors()["weight"].sum()) == 2048
        return
    with pytest.raises(InfrastructureError, match=r"input weight: .*expected .*bfloat16.*found .*float32"):
        given.tensors()


def test_an_empty_tensor(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    case = load(collection)
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}}).encode()
    blob(collection).write_bytes(len(header).to_bytes(8, "little") + header)
    empty = case.definition.axes["hidden_size"].model_copy(update={"value": 0})
    definition = case.definition.model_copy(update={"axes": {**case.definition.axes, "hidden_size": empty}})
    from ptxbench.trace.safetensors_file import digest

    case = case.model_copy(update={"definition": definition, "blobs": {"weight": digest(blob(collection))}})
    assert GivenInputs(case, "cpu").tensors()["weight"].shape == (0,)


@pytest.mark.parametrize("uuid", ["d9", "f5"])
def test_a_draw_holds_every_input_and_the_reference_takes_it(uuid: str) -> None:
    case = load(uuid=uuid)
    source = InputSource(case)
    made = source.make(source.keep(), "cpu")
    assert set(made) == {"hidden_states", "weight"}
    assert ("weight" in source.derived) is (uuid == "d9")
    outputs = reference_outputs(case, compile_reference(case), made)
    x, weight = made["hidden_states"].double(), made["weight"].double()
    eps = 1e-5 if uuid == "d9" else 1e-6
    exact = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight
    assert torch.allclose(outputs["output"].double(), exact, atol=1e-3, rtol=2**-8)
