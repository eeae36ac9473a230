"""The parts that need no device: what is staged, and that draws do not repeat. What they hold: tests/gpu."""

from typing import get_args

import pytest

from ptxbench.cases.case import InputRecipe
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.arena import TensorSpec
from ptxbench.profiler.inputs import RECIPES, InputSource, specs_of
from ptxbench.trace.definition import DType
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


def test_every_recipe_says_what_is_not_normal_data() -> None:
    assert set(RECIPES) == set(get_args(InputRecipe))


@pytest.mark.parametrize("name", ["mha_bwd_d128", "mha_bwd_d128_causal"])
def test_derived_inputs_exist(name: str) -> None:
    case = suite_case(name)
    assert set(RECIPES[case.input_recipe].derived) < set(case.input_shapes())


def test_no_draw_is_given_twice_until_a_sandbox_is_new() -> None:
    source = InputSource(suite_case())
    first = [source.draw() for _ in range(50)]
    assert len({*first, source.keep()}) == 51
    assert all(len(draw.keys) == 2 for draw in first)
    assert len({key for draw in first for key in draw.keys}) == 100


def test_a_new_sandbox_gets_the_same_draws_in_another_order() -> None:
    source = InputSource(suite_case())
    first = [source.draw() for _ in range(50)]
    source.forget()
    again = [source.draw() for _ in range(50)]
    assert sorted(again) == sorted(first)
    assert again != first
    assert source.draw() not in first


def test_derived_inputs_are_not_drawn() -> None:
    source = InputSource(suite_case("mha_bwd_d128"))
    assert source.derived == ("O", "L")
    assert len(source.draw().keys) == 4


def test_an_input_that_cannot_be_drawn_is_named() -> None:
    case = suite_case()
    inputs = {**case.definition.inputs}
    inputs["A"] = inputs["A"].model_copy(update={"dtype": DType("int32")})
    definition = case.definition.model_copy(update={"inputs": inputs})
    with pytest.raises(InfrastructureError, match="found A of int32"):
        InputSource(case.model_copy(update={"definition": definition}))
