"""References and oracles of every case against NumPy float64, under every family of inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ptxbench.profiler.exact import ORACLES, exact_errors, exact_outputs, scale_relative
from tests.support import textbook
from tests.support.small_cases import NAMES, PAIRS, small_case, staged

HALF_UNIT = {torch.bfloat16: 2.0**-8, torch.float32: 2.0**-23}
"""Largest relative error of rounding once, twice over: the fp32 sums before it have errors too."""
NATURAL, BASE_2 = [name for name in NAMES if "with_lse" in name], [name for name in NAMES if name.startswith("gqa")]


def test_all_cases_are_here():
    assert len(NAMES) == 16
    assert (len(NATURAL), len(BASE_2)) == (6, 3)
    assert {small_case(name).baseline.call for name in NAMES} == set(ORACLES) == set(textbook.OPERATIONS)


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_reference_and_oracle_agree_with_numpy_in_float64(name, family):
    subject = staged(name, family)
    truth = textbook.outputs(subject.case, subject.inputs)
    exact = exact_outputs(subject.case, subject.inputs)
    assert exact is not None
    for output, wanted in truth.items():
        np.testing.assert_allclose(
            exact[output].numpy(), wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max(), err_msg=output
        )
        reference = subject.checked.references[output]
        # The scale of the sums' terms, not of their results: gradients cancel. Spiky scores of several hundred have
        # fp32 errors of 1e-5 each, which the exponential makes relative. The most in 300 draws was a tenth of this.
        scale = float(np.sqrt((np.nan_to_num(wanted, neginf=0.0) ** 2).mean()))
        slack = (1e-3 if family == "spiky" else 1.6e-5) * scale + 1e-6
        bound = HALF_UNIT[reference.dtype] * np.abs(wanted) + slack
        assert (np.abs(reference.double().numpy() - wanted) <= bound).all(), output


@pytest.mark.parametrize("name", NAMES)
def test_errors_of_library_and_reference_are_told_apart(name):
    subject = staged(name, "normal")
    references = subject.checked.references
    library = {output: tensor * (1 + 2.0**-5) for output, tensor in references.items()}
    errors = exact_errors(subject.case, subject.inputs, library, references)
    assert errors is not None
    assert errors.precision == "float64"
    for output, tensor in references.items():
        rounding = 2.0**-9 if tensor.dtype == torch.bfloat16 else 1e-6
        assert errors.reference[output] < rounding
        assert errors.library[output] == pytest.approx(2.0**-5, rel=0.1)


@pytest.mark.parametrize("name", [*NATURAL, *BASE_2])
def test_the_base_of_the_lse(name):
    """MHA's is natural, GQA's is base 2: each is far from the other by the case's own comparison."""
    from ptxbench.profiler.comparison import compare_output

    subject = staged(name, "normal")
    output = "LSE" if name in NATURAL else "lse"
    truth = torch.from_numpy(textbook.outputs(subject.case, subject.inputs)[output])
    factor = 1 / math.log(2) if name in NATURAL else math.log(2)
    bounds = {"atol": subject.case.tolerance.atol, "rtol": subject.case.tolerance.rtol}
    reference = subject.checked.references[output]
    assert compare_output(output, truth.float(), reference, **bounds).mismatched == 0
    other = compare_output(output, (truth * factor).float(), reference, **bounds)
    # An LSE near zero is the same in every base: at most a few of these draws.
    assert other.mismatched > 0.9 * other.elements


def test_the_base_of_the_lse_that_a_backward_pass_takes():
    """P = exp(scores - L) has rows of sum 1 with a natural L alone."""
    subject = staged("mha_bwd_d64", "normal")
    right = exact_outputs(subject.case, subject.inputs)
    wrong = exact_outputs(subject.case, {**subject.inputs, "L": subject.inputs["L"] / math.log(2)})
    assert right is not None
    assert wrong is not None
    assert scale_relative(wrong["dV"], right["dV"]) > 0.5
    assert scale_relative(subject.checked.references["dV"], right["dV"]) < 2.0**-8


def test_queries_are_the_last_ones_of_their_keys():
    """The causal mask of a prefill with a history: the first query sees everything before it."""
    subject = staged("gqa_ragged_prefill_causal_h32_kv4_d128", "normal")
    kv, qo = subject.inputs["kv_indptr"].tolist(), subject.inputs["qo_indptr"].tolist()
    assert kv[1] - kv[0] > qo[1] - qo[0]
    before = subject.checked.references["output"][0]
    changed = {**subject.inputs, "v": subject.inputs["v"].clone()}
    seen = (kv[1] - kv[0]) - (qo[1] - qo[0])
    changed["v"][seen + 1 : kv[1]] += 1
    after = exact_outputs(subject.case, changed)
    assert after is not None
    assert torch.allclose(after["output"][0], before.double(), rtol=1e-2, atol=1e-2)
    changed["v"][seen] += 100
    again = exact_outputs(subject.case, changed)
    assert again is not None
    assert not torch.allclose(again["output"][0], before.double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("sizes", [(3, 0), (0, 0)])
def test_a_row_that_sees_no_key_is_zero_with_an_infinite_lse(sizes):
    queries, keys = sizes
    inputs = {
        "q": torch.randn(queries, 4, 8), "k": torch.randn(keys, 2, 8), "v": torch.randn(keys, 2, 8),
        "qo_indptr": torch.tensor([0, queries], dtype=torch.int32),
        "kv_indptr": torch.tensor([0, keys], dtype=torch.int32),
    }  # fmt: skip
    case = small_case("gqa_ragged_prefill_causal_h32_kv4_d128")
    exact = exact_outputs(case, inputs)
    assert exact is not None
    namespace: dict[str, Any] = {}
    exec(compile(case.definition.reference, "reference", "exec"), namespace)
    for output, lse in (tuple(exact.values()), namespace["run"](*inputs.values(), 1.0)):
        assert output.shape == (queries, 4, 8)
        assert output.eq(0).all()
        assert lse.eq(-math.inf).all()


def test_a_library_value_that_is_not_finite_is_an_infinite_error():
    assert scale_relative(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]).double()) == math.inf
    truth = torch.tensor([3.0, -math.inf]).double()
    assert scale_relative(torch.tensor([3.0, -5e4]), truth) == 0.0
    assert scale_relative(torch.tensor([0.0]), torch.tensor([0.0]).double()) == 0.0
    assert scale_relative(torch.tensor([1.0]), torch.tensor([0.0]).double()) == 1.0


def test_an_unknown_operation_has_no_oracle():
    case = small_case("gemm_n7168_k5120")
    unknown = case.model_copy(update={"baseline": case.baseline.model_copy(update={"call": "other"})})
    assert exact_outputs(unknown, {}) is None
    assert exact_errors(unknown, {}, {}, {}) is None
