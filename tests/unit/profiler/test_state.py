"""The reference's contract on the CPU, and the cache's policy. Staging itself needs a device (tests/gpu)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ptxbench.cases import Case
from ptxbench.errors import InfrastructureError
from ptxbench.profiler import state
from ptxbench.profiler.inputs import Draw
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.state import StateCache, bounds_of, checked_draw, reference_outputs
from ptxbench.trace.definition import DType
from tests.unit.factories import GEMM, suite_case

if TYPE_CHECKING:
    import torch

WEIGHT, ROWS = 3, 5
"""Bytes of a stand-in state, and rows of the small GEMM."""


def with_reference(source: str, name: str = GEMM) -> Case:
    case = suite_case(name)
    workload = case.workload.model_copy(update={"axes": {**case.workload.axes, "M": ROWS}})
    definition = case.definition.model_copy(update={"reference": source})
    return case.model_copy(update={"definition": definition, "workload": workload})


def gemm_inputs() -> "dict[str, torch.Tensor]":
    import torch

    generator = torch.Generator().manual_seed(1)
    shapes = {"A": (ROWS, 5120), "B": (7168, 5120)}
    return {name: torch.randn(*shape, generator=generator, dtype=torch.bfloat16) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def inputs() -> "dict[str, torch.Tensor]":
    return gemm_inputs()


def run_reference(source: str, inputs: "dict[str, torch.Tensor]") -> "dict[str, torch.Tensor]":
    case = with_reference(source)
    return reference_outputs(case, compile_reference(case), inputs)


def test_reference_of_the_suite_runs_and_names_its_outputs(inputs: "dict[str, torch.Tensor]") -> None:
    outputs = run_reference(suite_case().definition.reference, inputs)
    assert list(outputs) == ["C"]
    expected = inputs["A"].float() @ inputs["B"].float().T
    assert outputs["C"].float().allclose(expected, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("words", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_a_reference_without_memory_is_no_wrong_reference(words: str) -> None:
    """A candidate may have taken it (docs/verdict-rules.md), or another state has to go first."""
    with pytest.raises(RuntimeError, match=words):
        run_reference(f"def run(A, B):\n    raise RuntimeError({words!r})\n", {"A": None, "B": None})


def test_several_outputs_are_named_in_definition_order() -> None:
    import torch

    case = suite_case("mha_with_lse_d128")
    axes = dict.fromkeys(case.workload.axes, 2)
    case = case.model_copy(update={"workload": case.workload.model_copy(update={"axes": axes})})
    shapes = {name: shape for name, shape in case.input_shapes().items() if shape is not None}
    tensors = {name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    outputs = reference_outputs(case, compile_reference(case), tensors)
    assert {name: tuple(output.shape) for name, output in outputs.items()} == case.output_shapes()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def run(:\n", "SyntaxError"),
        ("import no_such_module_here\n", "ModuleNotFoundError"),
        ("def walk(A, B):\n    return A\n", "KeyError: 'run'"),
        ("raise ValueError('no')\n", "ValueError: no"),
    ],
)
def test_reference_that_does_not_load_is_named(source: str, words: str) -> None:
    with pytest.raises(InfrastructureError, match=f"definition {GEMM} does not load") as caught:
        compile_reference(with_reference(source))
    assert caught.value.kind == "reference_failed"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no')", "failed: ValueError: no"),
        ("return A @ B", "failed: RuntimeError"),
        ("return A.new_empty(5, 7167)", "found [((5, 7167), 'bfloat16')]"),
        ("return A.new_empty(7168, 5)", "found [((7168, 5), 'bfloat16')]"),
        ("return A.float().new_empty(5, 7168)", "found [((5, 7168), 'float32')]"),
        ("return A.new_empty(5, 7168), A", "((5, 5120), 'bfloat16')]"),
        ("return ()", "found []"),
        ("return None", "found [((), 'NoneType')]"),
        ("return 1.5", "found [((), 'float')]"),
        ("return [A.new_empty(5, 7168), None]", "((), 'NoneType')]"),
    ],
)
def test_reference_that_fails_is_named_with_what_was_found(
    body: str, words: str, inputs: "dict[str, torch.Tensor]"
) -> None:
    with pytest.raises(InfrastructureError, match=GEMM) as caught:
        run_reference(f"def run(A, B):\n    {body}\n", inputs)
    assert caught.value.kind == "reference_failed"
    assert words in str(caught.value)
    if "found" in words:
        assert "expected outputs [((5, 7168), 'bfloat16')]" in str(caught.value)
        assert "mend the definition" in str(caught.value)


def test_outputs_may_come_in_a_list(inputs: "dict[str, torch.Tensor]") -> None:
    assert set(run_reference("def run(A, B):\n    return [A.new_zeros(5, 7168)]\n", inputs)) == {"C"}


class StandInState:
    """A state without a device: it has a size and can be closed."""

    made: list[str]
    failures: dict[str, int]

    def __init__(self, case: Case) -> None:
        if self.failures.get(case.name, 0):
            self.failures[case.name] -= 1
            raise InfrastructureError("out_of_device_memory", f"{case.name} does not fit")
        self.case, self.nbytes, self.closed = case, WEIGHT, False
        self.made.append(case.name)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandInState]:
    StandInState.made, StandInState.failures = [], {}
    monkeypatch.setattr(state, "WorkloadState", StandInState)
    return StandInState


Open = Callable[[int], tuple[StateCache, list[object]]]


@pytest.fixture
def cache() -> Open:
    def open_cache(budget: int) -> tuple[StateCache, list[object]]:
        evicted: list[object] = []
        return StateCache(budget, evicted.append), evicted

    return open_cache


A, B, C = "gemm_n7168_k5120", "mha_with_lse_d128", "mha_bwd_d128"


def test_state_is_built_once(stand_in: type[StandInState], cache: Open) -> None:
    states, _ = cache(100)
    first, cached = states.get(suite_case(A))
    assert not cached
    assert states.get(suite_case(A)) == (first, True)
    assert states.get(suite_case(A).shrunk())[1] is False
    assert stand_in.made == [A, A]


def test_least_recently_used_goes_first(stand_in: type[StandInState], cache: Open) -> None:
    states, evicted = cache(2 * WEIGHT)
    a, b = (states.get(suite_case(name))[0] for name in (A, B))
    states.get(suite_case(A))
    states.get(suite_case(C))
    assert evicted == [b]
    assert isinstance(b, StandInState)
    assert b.closed
    assert states.get(suite_case(A)) == (a, True)


def test_state_larger_than_the_budget_is_kept_alone(stand_in: type[StandInState], cache: Open) -> None:
    states, evicted = cache(WEIGHT - 1)
    a, _ = states.get(suite_case(A))
    assert states.get(suite_case(A)) == (a, True)
    states.get(suite_case(B))
    assert evicted == [a]


def test_without_a_budget_nothing_is_kept_between_evaluations(stand_in: type[StandInState], cache: Open) -> None:
    states, evicted = cache(0)
    a, _ = states.get(suite_case(A))
    assert states.get(suite_case(A))[1] is False
    assert evicted == [a]


def test_full_device_is_cleared_once_for_a_new_workload(stand_in: type[StandInState], cache: Open) -> None:
    states, evicted = cache(100)
    a, _ = states.get(suite_case(A))
    stand_in.failures = {B: 1}
    b, _ = states.get(suite_case(B))
    assert evicted == [a]
    assert states.get(suite_case(B)) == (b, True)


@pytest.mark.parametrize("before", [(), (A,)])
def test_workload_that_never_fits_is_an_error(
    before: tuple[str, ...], stand_in: type[StandInState], cache: Open
) -> None:
    states, _ = cache(100)
    for name in before:
        states.get(suite_case(name))
    stand_in.failures = {B: 2}
    with pytest.raises(InfrastructureError, match="does not fit"):
        states.get(suite_case(B))
    assert states.get(suite_case(A))[1] is False


def test_tolerance_follows_the_size_of_an_output_beyond_the_official_family() -> None:
    import torch

    case = with_reference("def run(A, B):\n    return A[:, :1].expand(5, 7168).contiguous() * 0 + 40")
    run = compile_reference(case)
    official = checked_draw(case, run, Draw((1, 2)), gemm_inputs(), ())
    shifted = checked_draw(case, run, Draw((1, 2), "shifted"), gemm_inputs(), ())
    assert bounds_of(case, official, "C", 0.95) == {"atol": 0.0095, "rtol": 0.0095}
    assert bounds_of(case, shifted, "C", 1.0) == {"atol": pytest.approx(4.0), "rtol": 0.01}
    assert torch.equal(shifted.references["C"], official.references["C"]), "measuring it leaves it alone"


def test_small_outputs_keep_the_official_tolerance() -> None:
    case = with_reference("def run(A, B):\n    return A[:, :1].expand(5, 7168).contiguous() * 0")
    draw = checked_draw(case, compile_reference(case), Draw((1, 2), "spiky"), gemm_inputs(), ())
    assert bounds_of(case, draw, "C", 1.0) == {"atol": 0.01, "rtol": 0.01}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool"])
def test_integer_outputs_have_no_tolerance(dtype: str) -> None:
    case = with_reference(f"import torch\n\ndef run(A, B):\n    return torch.ones(5, 7168, dtype=torch.{dtype})")
    outputs = {
        name: tensor.model_copy(update={"dtype": DType(dtype)}) for name, tensor in case.definition.outputs.items()
    }
    case = case.model_copy(update={"definition": case.definition.model_copy(update={"outputs": outputs})})
    draw = checked_draw(case, compile_reference(case), Draw((1, 2)), gemm_inputs(), ())
    assert bounds_of(case, draw, "C", 0.95) == {"atol": 0.0, "rtol": 0.0}
