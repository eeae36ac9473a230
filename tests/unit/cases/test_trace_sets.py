"""Collections bound to architectures, baselines and bounds."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from ptxbench.agent import suite_identity
from ptxbench.cases import load_suite
from ptxbench.cases.collection_case import CollectionCase, read_case
from ptxbench.cases.defaults import REFERENCE_BASELINE, default_fields, op_of
from ptxbench.cases.integers import integer_range, resolved
from ptxbench.cases.trace_sets import (
    Collections,
    load_collections,
    same_operation,
    suite_name,
    why_not,
)
from ptxbench.errors import InputError
from ptxbench.trace import Definition, FileError, RandomInput, ScalarInput, Workload, WorkloadInput
from tests.support.trace_sets import (
    OURS,
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
from tests.unit.trace import samples

CAPTURED, DRAWN = f"{RMSNORM}.d9a08d1f", f"{RMSNORM}.f5b14411"


def load(folder: Path = SMALL, *globs: str) -> Collections:
    return load_collections(ROOT, [folder], globs)


@pytest.fixture(scope="module")
def small() -> Collections:
    return load()


def test_every_workload_on_every_architecture(small: Collections) -> None:
    for arch in ("h100", "b200"):
        assert {case.name for case in small.suite.cases(arch)} == {*OURS, CAPTURED, DRAWN}
    assert small.left_out == ()
    assert (small.suite.name, {case.suite for case in small.suite.table}) == ("trace-set-small", {"trace-set-small"})


@pytest.mark.parametrize("name", OURS)
def test_a_definition_of_a_suite_is_bound_as_there(small: Collections, name: str) -> None:
    here, there = small.suite.case(name, "h100"), load_suite(ROOT, "primary").case(name, "h100")
    for field in ("op", "baseline", "tolerance", "input_recipe", "causal", "flops_formula", "bytes_formula"):
        assert getattr(here, field) == getattr(there, field)
    assert here.flops < there.flops
    assert here.shrunk_axes == there.shrunk_axes
    assert here.variants == ("none",)


def test_an_unknown_operator_claims_nothing(small: Collections) -> None:
    case = small.suite.case(CAPTURED, "h100")
    assert case.baseline == REFERENCE_BASELINE
    assert (case.op, case.flops, case.shrunk_axes, case.causal) == ("other", 0, {}, False)
    assert (case.tolerance.atol, case.tolerance.rtol) == (0.01, 0.01)
    # No kernel can write less than its outputs; what it must read nobody knows.
    assert (case.bytes_formula, case.bytes) == ("2*batch_size*hidden_size", 2 * 512 * 2048)
    assert (case.trials, case.warmup, case.iterations) == (3, 10, 50)


def test_what_lies_in_files_is_known_by_its_content(small: Collections, tmp_path: Path) -> None:
    case = small.suite.case(CAPTURED, "h100")
    assert isinstance(case, CollectionCase)
    assert list(case.blobs) == ["weight"]
    assert read_case(case.model_dump_json()) == case
    ours = load_suite(ROOT, "primary").cases("h100")[0]
    assert read_case(ours.model_dump_json()) == ours

    def identity(folder: Path) -> str:
        return suite_identity(load(folder).suite.table)

    moved = copy_small(tmp_path)
    assert identity(moved) == identity(SMALL)
    data = bytearray(blob(moved).read_bytes())
    data[-1] ^= 1
    blob(moved).write_bytes(data)
    assert identity(moved) != identity(SMALL)


def test_a_captured_input_keeps_its_size_and_is_made_by_no_recipe(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    path = next((collection / "workloads").rglob("mha_with_lse_d128.jsonl"))
    source = {"type": "safetensors", "path": "blob/q.safetensors", "tensor_key": "Q"}
    edit_line(path, lambda line: line["workload"]["inputs"].update(Q=source))
    header = json.dumps({"Q": {"dtype": "BF16", "shape": [1, 2, 256, 128], "data_offsets": [0, 131072]}}).encode()
    (collection / "blob" / "q.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(131072))
    case = load(collection).suite.case("mha_with_lse_d128", "h100")
    assert (case.input_recipe, case.shrunk_axes) == ("normal", {})
    assert case.shrunk() is case


PAGED = "gqa_paged_decode_h24_kv8_d128_ps1"


def paged_collection(tmp_path: Path, **sources: dict[str, str]) -> Path:
    """One workload of the paged decode: 64 sequences that all read the same 1,024 of 2,000 pages."""
    for kind, suffix in (("definitions", "json"), ("workloads", "jsonl")):
        folder = tmp_path / "paged" / kind
        folder.mkdir(parents=True)
        shutil.copyfile(ROOT / "cases" / kind / "gqa_paged" / f"{PAGED}.{suffix}", folder / f"{PAGED}.{suffix}")
    entries = {"kv_indptr": [65], "kv_indices": [65536]}
    header: dict[str, object] = {}
    begin = 0
    for name, shape in entries.items():
        header[name] = {"dtype": "I32", "shape": shape, "data_offsets": [begin, begin + 4 * shape[0]]}
        begin += 4 * shape[0]
    text = json.dumps(header).encode()
    (tmp_path / "paged" / "b.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(begin))
    axes = {"batch_size": 64, "len_indptr": 65, "num_kv_indices": 65536, "num_pages": 2000}
    path = tmp_path / "paged" / "workloads" / f"{PAGED}.jsonl"
    edit_line(path, lambda line: line["workload"].update(axes=axes))
    edit_line(path, lambda line: line["workload"]["inputs"].update(sources))
    return tmp_path / "paged"


CAPTURED_PAGES = {
    name: {"type": "safetensors", "path": "b.safetensors", "tensor_key": name} for name in ("kv_indptr", "kv_indices")
}


def test_captured_pages_are_not_counted_by_a_suites_formula(tmp_path: Path) -> None:
    case = load(paged_collection(tmp_path, **CAPTURED_PAGES)).suite.table[0]
    sizes = {
        name: tensor.dtype.bits // 8
        for name, tensor in (*case.definition.inputs.items(), *case.definition.outputs.items())
    }
    shapes = {**case.input_shapes(), **case.output_shapes()}
    everything = sum(math.prod(shape) * sizes[name] for name, shape in shapes.items() if shape is not None)
    # All the sequences may read the same pages: what must be moved is known of the outputs alone.
    fallback = default_fields(case.definition)
    assert (case.flops_formula, case.bytes_formula) == (fallback["flops_formula"], fallback["bytes_formula"])
    assert case.bytes < everything


def test_pages_of_the_suites_own_recipe_are(tmp_path: Path) -> None:
    case = load(paged_collection(tmp_path)).suite.table[0]
    (suite,) = (case for case in load_suite(ROOT, "generalization").cases("h100") if case.name == PAGED)
    assert (case.flops_formula, case.bytes_formula) == (suite.flops_formula, suite.bytes_formula)


def test_a_collections_own_formula_comes_first(tmp_path: Path) -> None:
    folder = paged_collection(tmp_path, **CAPTURED_PAGES)
    binding = f"schema_version: 1\nbindings:\n  - {{definition: {PAGED}, bytes: 7*num_pages}}\n"
    (folder / "ptxbench.yaml").write_text(binding)
    assert load(folder).suite.table[0].bytes == 14000


def test_a_file_without_workloads_is_left_out(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    (collection / RMSNORM_WORKLOADS).write_text("\n")
    assert load(collection).left_out == (f"{collection / RMSNORM_WORKLOADS} is left out: it holds no workload",)


def test_only_what_is_selected_needs_its_files(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    blob(collection).unlink()
    assert {case.name for case in load(collection, "mha*").suite.table} == {*OURS[1:]}
    for glob in ("*", DRAWN):
        with pytest.raises(FileError, match="no such file"):
            load(collection, glob)
    with pytest.raises(InputError, match=r"unknown case.*found 'mha_with_lse'. Did you mean 'mha_with_lse_d128'"):
        load(collection, "mha_with_lse")


def test_public_definitions_may_fix_axes_that_ours_leave_open(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    path = next((collection / "definitions").rglob("mha_with_lse_d128.json"))
    fixed = {"H": {"type": "const", "value": 2}}
    edit_json(path, lambda d: d.update(axes={name: fixed.get(name, axis) for name, axis in d["axes"].items()}))
    edit_line(
        next((collection / "workloads").rglob("mha_with_lse_d128.jsonl")), lambda w: w["workload"]["axes"].pop("H")
    )
    case = load(collection).suite.case("mha_with_lse_d128", "h100")
    assert case.baseline.call == "cudnn_attention_forward"
    assert case.flops == 4 * 1 * 2 * 256 * 256 * 128
    assert set(case.shrunk_axes) == {"B", "S"}
    assert case.shrunk().axes["H"] == 2


def test_another_operation_of_a_known_name_is_unknown() -> None:
    ours = load_suite(ROOT, "primary").case(OURS[0], "h100").definition
    assert same_operation(ours, ours)
    for change in (
        {"axes": {**ours.axes, "K": ours.axes["K"].model_copy(update={"value": 512})}},
        {"axes": dict(reversed(ours.axes.items()))},
        {"inputs": dict(reversed(ours.inputs.items()))},
        {"outputs": {"C": ours.outputs["C"].model_copy(update={"dtype": "float32"})}},
        {"name": "gemm"},
    ):
        assert not same_operation(ours, ours.model_copy(update=change))


@pytest.mark.parametrize(
    ("op_type", "op"),
    [
        ("gemm", "gemm"),
        ("fp8_gemm", "gemm"),
        ("gqa_paged", "attention"),
        ("mla-paged", "attention"),
        ("attention", "attention"),
        ("rmsnorm", "other"),
        ("gemma_norm", "other"),
    ],
)
def test_the_kind_of_an_operator(op_type: str, op: str) -> None:
    assert op_of(op_type) == op


def test_what_cannot_be_run_is_left_out_by_name(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    edit_json(collection / RMSNORM_DEFINITION, lambda d: d["outputs"].update(scale={"shape": None, "dtype": "float32"}))
    found = load(collection)
    assert found.left_out == (f"{RMSNORM} is left out: its output scale is a scalar, which no kernel can write",)
    assert {case.name for case in found.suite.table} == set(OURS)
    with pytest.raises(InputError, match="expected a case that can be run, found none: rmsnorm_h2048 is left out"):
        load(collection, "rmsnorm*")


def test_element_types_that_cannot_be_staged() -> None:
    document = samples.change(samples.definition(), "inputs", "X", "dtype", to="float8_e4m3fn")
    assert "its tensor X is of float8_e4m3fn" in why_not(Definition.model_validate_json(json.dumps(document)))
    assert why_not(Definition.model_validate_json(json.dumps(samples.definition()))) == ""


def test_a_random_scalar_has_one_value() -> None:
    definition = Definition.model_validate_json(json.dumps(samples.definition()))
    inputs: dict[str, WorkloadInput] = {"X": RandomInput(type="random"), "factor": RandomInput(type="random")}
    workload = Workload(uuid="u", axes={"M": 4}, inputs=inputs)
    first = resolved(definition, workload)
    assert isinstance(first.inputs["factor"], ScalarInput)
    assert isinstance(first.inputs["X"], RandomInput)
    assert resolved(definition, workload) == first
    assert resolved(definition, workload.model_copy(update={"uuid": "v"})).inputs != first.inputs


@pytest.mark.parametrize(("dtype", "kind"), [("bool", bool), ("int8", int), ("int64", int), ("float16", float)])
def test_random_scalars_are_of_their_type(dtype: str, kind: type) -> None:
    document = samples.change(samples.definition(), "inputs", "factor", "dtype", to=dtype)
    definition = Definition.model_validate_json(json.dumps(document))
    for uuid in map(str, range(20)):
        workload = Workload(uuid=uuid, axes={"M": 4}, inputs=dict.fromkeys(("X", "factor"), RandomInput(type="random")))
        scalar = resolved(definition, workload).inputs["factor"]
        assert isinstance(scalar, ScalarInput)
        assert type(scalar.value) is kind
        if kind is not float:
            least, most = integer_range(dtype)
            assert least <= scalar.value <= most


def test_names_that_are_no_names_and_uuids_that_begin_alike(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    odd = "rms norm [h2048]é"
    edit_json(collection / RMSNORM_DEFINITION, lambda d: d.update(name=odd))
    for line in (1, 2):
        edit_line(collection / RMSNORM_WORKLOADS, lambda w: w.update(definition=odd), line)
    edit_line(collection / RMSNORM_WORKLOADS, lambda w: w["workload"].update(uuid="d9a08d1f-other"), 2)
    names = {case.name for case in load(collection).suite.table} - set(OURS)
    assert len(names) == 2
    assert all(name.startswith("rms_norm_h2048-") and name.isascii() and " " not in name for name in names)


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    collection, name = copy_small(tmp_path), f"{RMSNORM}.d9a08d1f"
    for path in (collection / RMSNORM_DEFINITION, collection / RMSNORM_WORKLOADS):
        text = path.read_text().replace(f'"{RMSNORM}"', f'"{name}"')
        text = text.splitlines()[0] if path.suffix == ".jsonl" else text
        path.with_name(f"other{path.suffix}").write_text(text)
    with pytest.raises(FileError, match=r"`name`: expected a name by which cases can be told apart"):
        load(collection)


def test_axes_whose_names_no_formula_can_hold(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    text = (collection / RMSNORM_DEFINITION).read_text().replace('"batch_size"', '"batch size"')
    (collection / RMSNORM_DEFINITION).write_text(text)
    for line in (1, 2):
        edit_line(collection / RMSNORM_WORKLOADS, lambda w: w["workload"].update(axes={"batch size": 512}), line)
    assert load(collection).suite.case(CAPTURED, "h100").bytes == 2 * 512 * 2048


def test_a_collection_without_workloads(tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    with pytest.raises(InputError, match="expected a collection with workloads, found none"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("folders", "name"),
    [(["a/Small"], "trace-set-small"), (["x", "My Set.2"], "trace-set-x-my-set-2"), (["é"], "trace-set-unnamed")],
)
def test_names_of_suites(tmp_path: Path, folders: list[str], name: str) -> None:
    assert suite_name([tmp_path / folder for folder in folders]) == name


def test_several_collections_are_one_suite(tmp_path: Path) -> None:
    other = copy_small(tmp_path)
    for path in (*(other / "definitions").rglob("*.json"), *(other / "workloads").rglob("*.jsonl")):
        if RMSNORM not in path.name:
            path.unlink()
    edit_json(other / RMSNORM_DEFINITION, lambda d: d.update(name="mine"))
    for line in (1, 2):
        edit_line(other / RMSNORM_WORKLOADS, lambda w: w.update(definition="mine"), line)
    found = load_collections(ROOT, [SMALL, other])
    assert len(found.suite.cases("h100")) == 7
    roots = {case.collection_root for case in found.suite.table if isinstance(case, CollectionCase)}
    assert roots == {str(SMALL), str(other)}


def test_the_defaults_are_a_whole_entry() -> None:
    fields = default_fields(Definition.model_validate_json(json.dumps(samples.definition())))
    assert fields["bytes_formula"] == "2*M*D"
