"""Prompts of the generalization set say everything that a kernel writer needs: scalars, index inputs, sequences."""

from __future__ import annotations

import re

import pytest

from ptxbench.agent.prompt import first_messages
from ptxbench.cases import Case, load_suite
from ptxbench.packs import load_pack
from tests.unit.factories import ROOT

SUITE = load_suite(ROOT, "generalization")
CASES = pytest.mark.parametrize("case", SUITE.table, ids=lambda case: f"{case.arch.name}-{case.name}")


def user_message(case: Case) -> str:
    return first_messages(case, case.variants[0], load_pack(ROOT, case.arch.name, "params"))[1].content


@CASES
def test_every_argument_is_listed_in_order(case: Case) -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| (input|output) \| (\w+) \| ([^|]*) \| ([^|]*) \|", user_message(case), re.M
    )
    tensors = {**case.definition.inputs, **case.definition.outputs}
    assert [(row[1], row[3]) for row in rows] == [(name, tensor.dtype.value) for name, tensor in tensors.items()]
    shapes = {**case.input_shapes(), **case.output_shapes()}
    for row in rows:
        shape = shapes[row[1]]
        assert row[4] == (
            "null (a scalar, by value)" if shape is None else f"[{', '.join(tensors[row[1]].shape or ())}]"
        )
        assert row[5].strip() == ("" if shape is None else f"[{', '.join(map(str, shape))}]")


@CASES
def test_axes_baseline_and_reference_are_told(case: Case) -> None:
    text = user_message(case)
    assert "${" not in text
    for name, size in case.axes.items():
        assert re.search(rf"^- {name} = {size}(,| in this workload)", text, re.M), name
    assert f"`{case.baseline.call}` ({case.baseline.library})" in text
    assert case.definition.reference.strip() in text
    assert case.definition.description is not None
    assert case.definition.description in text
    assert f"{case.flops:,} FLOP" in text


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        ("gqa_ragged_prefill_causal_h32_kv4_d128", "33 sequences of 8 to 932 keys"),
        ("gqa_paged_prefill_causal_h24_kv8_d128_ps1", "1 sequence of 892 keys"),
        ("gqa_paged_decode_h24_kv8_d128_ps1", "15 sequences of 185 to 965 keys"),
    ],
)
def test_grouped_query_attention(name: str, sequences: str) -> None:
    case = SUITE.case(name, "h100")
    text = user_message(case)
    assert sequences in text
    assert "base-2 LSE" in text
    assert "natural" not in text
    assert "| sm_scale | input | float32 | null (a scalar, by value) |" in text
    structure = case.structure()
    assert structure is not None
    assert f"pairs = {structure.pairs:,}" in text
    assert ("page numbers of the cache" in text) == ("paged" in name)


@pytest.mark.parametrize("name", ["mha_with_lse_d64", "mha_bwd_d96_causal"])
def test_multi_head_attention(name: str) -> None:
    text = user_message(SUITE.case(name, "h100"))
    assert "natural" in text
    assert "pairs" not in text
    assert "base-2" not in text
