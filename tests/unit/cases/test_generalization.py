"""The generalization set says what PROTOCOL 2 says, and ``all`` is every suite."""

from __future__ import annotations

import math
import shutil

import pytest

from ptxbench.cases import load_suite
from ptxbench.errors import InputError
from ptxbench.trace import FileError
from tests.unit.cases import checkout

SUITE = load_suite(checkout.ROOT, "generalization")
CASES = pytest.mark.parametrize("case", SUITE.table, ids=lambda case: f"{case.name}-{case.arch.name}")
PROTOCOL = {
    "mha_with_lse_d64": "7d2575a0-bcc2-42a0-812f-6a7e9a57d97f",
    "mha_with_lse_d64_causal": "b69f7675-568f-40f2-9a4b-8bbe374b4a59",
    "mha_bwd_d64": "d3bcb902-6a13-5ada-9251-fa841b10cd0b",
    "mha_bwd_d64_causal": "5799ea50-77aa-56cb-9f62-a4c1f5473770",
    "mha_with_lse_d96": "e86112ff-2cd0-4e97-8efb-9ce6356ecb2b",
    "mha_with_lse_d96_causal": "982c9922-961f-452f-ab9e-574fdcd4e28c",
    "mha_bwd_d96": "082481a9-4a67-5c62-8093-560bb80e4c24",
    "mha_bwd_d96_causal": "3a45eb5c-3362-5705-bd42-80324d26a471",
    "gqa_ragged_prefill_causal_h32_kv4_d128": "007ddabb-3c8c-48a1-a693-c0618d32243c",
    "gqa_paged_prefill_causal_h24_kv8_d128_ps1": "2bcc7cdd-53db-4da4-844f-07ff4f3439b6",
    "gqa_paged_decode_h24_kv8_d128_ps1": "12e644fb-9783-46be-9763-f69561dfc700",
}
ARGUMENTS = {
    "ragged": ("q k v qo_indptr kv_indptr sm_scale", {"total_q": 16294, "total_kv": 16294, "len_indptr": 34}),
    "paged_prefill": (
        "q k_cache v_cache qo_indptr kv_indptr kv_indices sm_scale",
        {"total_q": 892, "num_kv_indices": 892, "num_pages": 43676, "len_indptr": 2},
    ),
    "paged_decode": (
        "q k_cache v_cache kv_indptr kv_indices sm_scale",
        {"batch_size": 15, "num_kv_indices": 9625, "num_pages": 42784, "len_indptr": 16},
    ),
}


def test_uuids():
    for arch in ("h100", "b200"):
        assert {case.name: case.workload.uuid for case in SUITE.cases(arch)} == PROTOCOL


@CASES
def test_arguments_and_sizes(case):
    if case.name.startswith("mha"):
        assert case.workload.axes == {"B": 4, "H": 48, "S": 4096}
        assert case.definition.const_axes == {"D": 64 if "d64" in case.name else 96}
        return
    kind = next(kind for kind in ARGUMENTS if kind in case.name)
    inputs, axes = ARGUMENTS[kind]
    assert (list(case.definition.inputs), case.workload.axes) == (inputs.split(), axes)
    heads = (32, 4) if kind == "ragged" else (24, 8)
    consts = dict(zip(("num_qo_heads", "num_kv_heads"), heads, strict=True)) | {"head_dim": 128}
    assert case.definition.const_axes == consts | ({} if kind == "ragged" else {"page_size": 1})
    assert case.scalars() == {"sm_scale": 1 / math.sqrt(128)}
    assert {case.dtypes()[name] for name in case.definition.inputs if "ind" in name} == {"int32"}


@CASES
def test_protocol_numbers(case):
    assert (case.trials, case.warmup, case.iterations) == (3, 10, 50)
    assert (case.tolerance.atol, case.tolerance.rtol) == (1e-2, 1e-2)
    assert case.causal == ("causal" in case.name)
    assert case.op == "attention"
    assert case.variants == ("none",)
    assert case.baseline.library == ("cudnn" if case.name.startswith("mha") else "flashinfer")


@CASES
def test_bytes_are_what_a_call_must_move(case):
    """Every input and output once; of a cache only the pages that are attended to."""
    for each in (case, case.shrunk()):
        shapes = {**each.input_shapes(), **each.output_shapes()}
        tensors = {**each.definition.inputs, **each.definition.outputs}
        total = 0
        for name, tensor in tensors.items():
            shape = shapes[name]
            if shape is None:
                continue
            read = each.axes["num_kv_indices"] if name.endswith("_cache") else shape[0]
            total += math.prod((read, *shape[1:])) * tensor.dtype.bits // 8
        assert each.bytes == total


def test_references_of_other_head_dimensions_are_the_primary_ones():
    """One text, so that what holds for one holds for all: the head dimension is read from the tensors."""
    primary = {case.name: case.definition for case in load_suite(checkout.ROOT, "primary").cases("h100")}
    for case in SUITE.cases("h100")[:8]:
        theirs = primary[case.name.replace("d64", "d128").replace("d96", "d128")]
        assert case.definition.reference == theirs.reference
        assert case.definition.inputs == theirs.inputs
        assert case.definition.outputs == theirs.outputs


def test_all_is_every_suite():
    everything = load_suite(checkout.ROOT, "all")
    primary = load_suite(checkout.ROOT, "primary")
    assert everything.name == "all"
    assert everything.archs == ("h100", "b200")
    assert everything.cases("b200") == (*primary.cases("b200"), *SUITE.cases("b200"))
    assert len(everything.cases("h100")) == 16
    assert {case.suite for case in everything.table} == {"primary", "generalization"}
    assert everything.cases("h100")[:5] == primary.cases("h100")


def test_a_definition_in_two_suites_is_named(tmp_path):
    root = checkout.copy(tmp_path)
    suites = root / "cases" / "suites"
    text = (suites / "primary.yaml").read_text()
    (suites / "twice.yaml").write_text(text.replace("name: primary", "name: twice"))
    with pytest.raises(InputError, match="found gemm_n7168_k5120 in primary and twice"):
        load_suite(root, "all")


def test_no_file_may_be_called_all(tmp_path):
    root = checkout.copy(tmp_path)
    suites = root / "cases" / "suites"
    shutil.copyfile(suites / "primary.yaml", suites / "all.yaml")
    with pytest.raises(InputError, match="rename the file"):
        load_suite(root, "primary")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("{batch_size: 5, len_indptr: 6,", "{batch_size: 5, len_indptr: 7,", "len_indptr = batch_size"),
        ("input_recipe: normal", "input_recipe: gqa_paged_decode", "none named 'len_indptr'"),
        ("{len_indptr: 6, total_q: 200,", "{len_indptr: 6, total_q: 4,", "at least one query"),
    ],
)
def test_sequences_that_cannot_be_are_an_error_of_the_suite(tmp_path, old, new, found):
    root = checkout.copy(tmp_path)
    checkout.edit(root / "cases" / "suites" / "generalization.yaml", old, new)
    with pytest.raises(FileError) as caught:
        load_suite(root, "generalization")
    assert caught.value.field.endswith("input_recipe")
    assert found in str(caught.value)
