"""The committed data says what PROTOCOL says."""

from __future__ import annotations

import math

import pytest

from ptxbench.cases import load_suite
from ptxbench.trace import load_workloads
from tests.unit.cases import checkout

SUITE = load_suite(checkout.ROOT, "primary")
CASES = pytest.mark.parametrize("case", SUITE.table, ids=lambda case: f"{case.name}-{case.arch.name}")
HEADS = {"B": 4, "H": 48, "S": 4096}

PROTOCOL = {
    "gemm_n7168_k5120": ("94920358-01a8-4c5b-9209-3103fd490e94", {"M": 8192}, "A B", "C"),
    "mha_with_lse_d128": ("bc38b351-d595-451b-9153-8e225702e53b", HEADS, "Q K V", "O LSE"),
    "mha_with_lse_d128_causal": ("6d2f67a7-225a-4af5-87d3-cbb99b496325", HEADS, "Q K V", "O LSE"),
    "mha_bwd_d128": ("38c3b07c-f006-5f5e-9860-ba214c805a6b", HEADS, "Q K V O dO L", "dQ dK dV"),
    "mha_bwd_d128_causal": ("c119b3f0-c051-5e96-9c2a-2268d992fe1a", HEADS, "Q K V O dO L", "dQ dK dV"),
}


@CASES
def test_workloads(case):
    uuid, axes, inputs, outputs = PROTOCOL[case.name]
    assert case.workload.uuid == uuid
    assert case.workload.axes == axes
    assert list(case.definition.inputs) == inputs.split()
    assert list(case.definition.outputs) == outputs.split()
    assert case.definition.var_axes == tuple(axes)
    fp32 = {name for name, dtype in case.dtypes().items() if dtype == "float32"}
    assert fp32 == {"L", "LSE"} & set(case.dtypes())
    assert {dtype for name, dtype in case.dtypes().items() if name not in fp32} == {"bfloat16"}


def test_const_axes():
    assert SUITE.case("gemm_n7168_k5120", "h100").definition.const_axes == {"N": 7168, "K": 5120}
    assert all(case.definition.const_axes == {"D": 128} for case in SUITE.cases("h100")[1:])


@CASES
def test_protocol_numbers(case):
    assert (case.trials, case.warmup, case.iterations) == (3, 10, 50)
    assert (case.tolerance.atol, case.tolerance.rtol) == (1e-2, 1e-2)
    assert case.causal == case.name.endswith("_causal")
    backward = "bwd" in case.name
    assert case.input_recipe == ("attention_backward" if backward else "normal")
    if case.op == "gemm":
        assert (case.baseline.library, case.baseline.call) == ("cublas", "torch.matmul")
    else:
        assert case.baseline.library == "cudnn"
        assert case.baseline.call == f"cudnn_attention_{'backward' if backward else 'forward'}"


@CASES
def test_bytes_are_every_input_once_and_every_output_once(case):
    for each in (case, case.shrunk()):
        shapes = {**each.input_shapes(), **each.output_shapes()}
        tensors = {**each.definition.inputs, **each.definition.outputs}
        assert each.bytes == sum(math.prod(shapes[name]) * tensor.dtype.bits // 8 for name, tensor in tensors.items())


def test_flops():
    flops = {case.name: case.flops for case in SUITE.cases("h100")}
    forward = 4 * 4 * 48 * 4096 * 4096 * 128
    assert flops == {
        "gemm_n7168_k5120": 2 * 8192 * 7168 * 5120,
        "mha_with_lse_d128": forward,
        "mha_with_lse_d128_causal": forward // 2,
        "mha_bwd_d128": forward * 5 // 2,
        "mha_bwd_d128_causal": forward * 5 // 4,
    }


@CASES
def test_shrunk_axes(case):
    small = case.shrunk()
    wanted = {"M": 256} if case.op == "gemm" else {"B": 1, "H": 2, "S": 256}
    assert small.workload.axes == wanted


def test_variants_follow_the_protocol():
    variants = {(case.arch.name, case.name): case.variants for case in SUITE.table}
    assert all(len(names) == 3 and names[0] == "none" for names in variants.values())
    assert variants["h100", "gemm_n7168_k5120"] == ("none", "cluster-multicast", "warp-specialization")
    assert variants["b200", "gemm_n7168_k5120"] == ("none", "cluster-multicast", "tma-store")
    assert variants["b200", "mha_bwd_d128"] == ("none", "2-cta-schedule", "1-cta-schedule")
    for arch in SUITE.archs:
        for name in ("mha_with_lse_d128", "mha_bwd_d128"):
            assert variants[arch, name] == variants[arch, f"{name}_causal"]


def test_every_workload_file_belongs_to_a_definition():
    folders = checkout.ROOT / "cases"
    for path in (folders / "workloads").glob("*/*.jsonl"):
        assert (folders / "definitions" / path.parent.name / f"{path.stem}.json").is_file()
        assert {trace.definition for trace in load_workloads(path)} == {path.stem}
