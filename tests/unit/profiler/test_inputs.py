"""The parts that need no device: what is staged, and that windows are aligned and many."""

from typing import get_args

import pytest

from ptxbench.cases.case import InputRecipe
from ptxbench.profiler.arena import ELEMENT_BYTES, TensorSpec
from ptxbench.profiler.inputs import DERIVED, OFFSET_STEP, POOL_SLACK, specs_of
from tests.unit.factories import suite_case


def test_specs_are_the_calls_arguments_in_order() -> None:
    assert specs_of(suite_case()) == (
        TensorSpec("A", (8192, 5120), "bfloat16", False),
        TensorSpec("B", (7168, 5120), "bfloat16", False),
        TensorSpec("C", (8192, 7168), "bfloat16", True),
    )


def test_specs_of_a_backward_case() -> None:
    specs = specs_of(suite_case("mha_bwd_d128"))
    assert [spec.name for spec in specs] == ["Q", "K", "V", "O", "dO", "L", "dQ", "dK", "dV"]
    assert [spec.name for spec in specs if spec.output] == ["dQ", "dK", "dV"]
    assert specs[5] == TensorSpec("L", (4, 48, 4096), "float32", False)


def test_specs_follow_the_shrunk_workload() -> None:
    case = suite_case().shrunk()
    assert specs_of(case)[0].shape == (case.axes["M"], 5120)


def test_scalar_inputs_are_no_tensors() -> None:
    case = suite_case()
    inputs = {**case.definition.inputs}
    inputs["alpha"] = inputs["A"].model_copy(update={"shape": None})
    scaled = case.model_copy(update={"definition": case.definition.model_copy(update={"inputs": inputs})})
    assert scaled.input_shapes()["alpha"] is None
    assert specs_of(scaled) == specs_of(case)


def test_every_recipe_says_what_it_derives() -> None:
    assert set(DERIVED) == set(get_args(InputRecipe))


@pytest.mark.parametrize("name", ["mha_bwd_d128", "mha_bwd_d128_causal"])
def test_derived_inputs_exist(name: str) -> None:
    case = suite_case(name)
    assert set(DERIVED[case.input_recipe]) < set(case.input_shapes())


def test_windows_are_aligned_for_wide_copies_and_many() -> None:
    assert all(OFFSET_STEP * nbytes % 64 == 0 for nbytes in ELEMENT_BYTES.values())
    assert OFFSET_STEP * ELEMENT_BYTES["bfloat16"] == 128
    assert POOL_SLACK % OFFSET_STEP == 0
    # A second tensor makes repeats of a pair improbable; one alone still has more windows than a sandbox has calls.
    assert POOL_SLACK // OFFSET_STEP > 100 * 200
