import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ptxbench.profiler import comparison
from ptxbench.profiler.comparison import SHOWN_MISMATCHES, compare_output, unravel
from ptxbench.records import OutputComparison

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-2
DTYPES = ["bfloat16", "float16", "float32"]
NAN, INF = math.nan, math.inf

VALUES = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, 1.01, 1.0100001, NAN, INF, -INF, 3.4e38, -3.4e38])
PAIRS = st.lists(
    st.tuples(VALUES, VALUES)
    | VALUES.map(lambda value: (value, value))
    # Near the bound, where the order of roundings decides.
    | st.tuples(st.floats(-100, 100, width=32), st.floats(-1.5, 1.5)).map(
        lambda pair: (pair[0] + pair[1] * (TOLERANCE + TOLERANCE * abs(pair[0])), pair[0])
    ),
    max_size=40,
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda elements: monkeypatch.setattr(comparison, "CHUNK_ELEMENTS", elements)


def tensor(values: list[float], dtype: str, shape: tuple[int, ...] = (-1,)) -> "torch.Tensor":
    import torch

    return torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype)).reshape(shape)


def compare(out: "torch.Tensor", ref: "torch.Tensor", tolerance: float = TOLERANCE) -> OutputComparison:
    return compare_output("C", out, ref, atol=tolerance, rtol=tolerance)


def close(out: "torch.Tensor", ref: "torch.Tensor") -> Any:
    import torch

    return torch.isclose(out.float(), ref.float(), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
@given(pairs=PAIRS)
@example(pairs=[(INF, 1.0), (1.0, INF), (INF, INF), (-INF, INF), (NAN, NAN), (NAN, 1.0), (1.0, NAN)])
def test_counts_are_those_of_allclose(dtype: str, pairs: list[tuple[float, float]]) -> None:
    import torch

    out, ref = tensor([pair[0] for pair in pairs], dtype), tensor([pair[1] for pair in pairs], dtype)
    found = compare(out, ref)
    agree = close(out, ref)
    assert found.mismatched == int((~agree).sum())
    assert (found.mismatched == 0) == torch.allclose(out.float(), ref.float(), atol=TOLERANCE, rtol=TOLERANCE)
    assert found.first_mismatches == tuple((i,) for i in (~agree).nonzero()[:SHOWN_MISMATCHES, 0].tolist())
    assert found.nan == int((out.isnan() & ~ref.isnan()).sum())
    assert found.elements == len(pairs)
    assert found.dtype == dtype


@given(pairs=PAIRS)
def test_magnitudes_are_over_finite_errors(pairs: list[tuple[float, float]]) -> None:
    out, ref = tensor([pair[0] for pair in pairs], "float32"), tensor([pair[1] for pair in pairs], "float32")
    found = compare(out, ref)
    errors = [abs(error) if math.isfinite(error) else 0.0 for error in (out - ref).tolist()]
    sizes = [abs(size) if math.isfinite(size) else 0.0 for size in ref.tolist()]
    count = max(1, len(pairs))
    assert found.rms_error == pytest.approx(math.sqrt(math.fsum(e * e for e in errors) / count), rel=1e-6)
    assert found.rms_reference == pytest.approx(math.sqrt(math.fsum(s * s for s in sizes) / count), rel=1e-6)
    assert found.max_abs_error == pytest.approx(max(errors, default=0.0))
    assert not math.isnan(found.max_rel_error)


@given(pairs=PAIRS, chunk=st.integers(1, 41))
def test_chunks_change_nothing(pairs: list[tuple[float, float]], chunk: int) -> None:
    out, ref = tensor([pair[0] for pair in pairs], "bfloat16"), tensor([pair[1] for pair in pairs], "bfloat16")
    whole = compare(out, ref)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "CHUNK_ELEMENTS", chunk)
        parts = compare(out, ref)
    floats = {"rms_error", "rms_reference"}
    assert parts.model_dump(exclude=floats) == whole.model_dump(exclude=floats)
    assert parts.rms_error == pytest.approx(whole.rms_error)
    assert parts.rms_reference == pytest.approx(whole.rms_reference)


def test_errors_at_chunk_boundaries_are_found(small_chunks: Callable[[int], None]) -> None:
    import torch

    small_chunks(8)
    ref = torch.zeros(3, 11)
    out = ref.clone()
    for flat in (7, 8, 15, 16, 32):
        out.view(-1)[flat] = 1.0
    found = compare(out, ref)
    assert found.mismatched == 5
    assert found.first_mismatches == ((0, 7), (0, 8), (1, 4), (1, 5), (2, 10))
    assert found.shape == (3, 11)


def test_first_mismatches_stop_at_the_limit_across_chunks(small_chunks: Callable[[int], None]) -> None:
    import torch

    small_chunks(3)
    found = compare(torch.ones(2, 2, 5), torch.zeros(2, 2, 5))
    assert found.mismatched == 20
    assert found.first_mismatches == tuple(unravel(flat, (2, 2, 5)) for flat in range(SHOWN_MISMATCHES))


def test_unwritten_output_is_nan_everywhere() -> None:
    import torch

    poisoned = torch.full((4, 3), -1, dtype=torch.int16).view(torch.bfloat16)
    found = compare(poisoned, torch.ones(4, 3, dtype=torch.bfloat16))
    assert (found.nan, found.mismatched, found.elements) == (12, 12, 12)
    assert found.max_abs_error == found.rms_error == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_empty_outputs_agree(dtype: str, shape: tuple[int, ...]) -> None:
    found = compare(tensor([], dtype, shape), tensor([], dtype, shape))
    assert (found.elements, found.mismatched, found.nan, found.first_mismatches) == (0, 0, 0, ())
    assert found.rms_error == found.rms_reference == found.relative_rms == 0.0


def test_scalar_output() -> None:
    found = compare(tensor([2.0], "float32", ()), tensor([1.0], "float32", ()))
    assert (found.shape, found.mismatched, found.first_mismatches) == ((), 1, ((),))
    assert (found.max_abs_error, found.max_rel_error, found.relative_rms) == (1.0, 1.0, 1.0)


def test_errors_whose_squares_leave_fp32_are_measured() -> None:
    found = compare(tensor([1e30, 0.0], "float32"), tensor([0.0, 1e25], "float32"))
    assert found.rms_error == pytest.approx(1e30 / math.sqrt(2))
    assert found.rms_reference == pytest.approx(1e25 / math.sqrt(2))


def test_difference_that_overflows_is_a_mismatch() -> None:
    assert compare(tensor([3.4e38], "float32"), tensor([-3.4e38], "float32")).mismatched == 1


def test_error_on_the_bound_agrees() -> None:
    assert compare(tensor([1.5], "float32"), tensor([1.0], "float32"), tolerance=0.25).mismatched == 0
    assert compare(tensor([1.5000002], "float32"), tensor([1.0], "float32"), tolerance=0.25).mismatched == 1


def test_strided_tensors_are_compared_by_index() -> None:
    import torch

    ref = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    out = ref.t().contiguous().t()
    assert not out.is_contiguous()
    assert compare(out, ref).mismatched == 0
    out[2, 1] += 5
    assert compare(out, ref).first_mismatches == ((2, 1),)


def test_inputs_are_left_alone() -> None:
    out, ref = tensor([1.0, NAN, INF], "float32"), tensor([2.0, 3.0, INF], "float32")
    before = out.clone(), ref.clone()
    compare(out, ref)
    assert out.nan_to_num(7.0).equal(before[0].nan_to_num(7.0))
    assert ref.equal(before[1])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple), st.data())
def test_unravel_inverts_row_major_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    flat = data.draw(st.integers(0, math.prod(shape) - 1))
    index = unravel(flat, shape)
    assert all(0 <= position < extent for position, extent in zip(index, shape, strict=True))
    again = 0
    for position, extent in zip(index, shape, strict=True):
        again = again * extent + position
    assert again == flat


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool"])
def test_integers_agree_when_they_are_equal(dtype: str) -> None:
    """Whatever the tolerance: an index that is 0.8% off is another index."""
    import torch

    ref = torch.tensor([100, 101, 7, 0] * 4).to(getattr(torch, dtype))
    assert compare(ref.clone(), ref).mismatched == 0
    out = ref.clone()
    out[5] = not ref[5] if dtype == "bool" else ref[5] + 1
    found = compare(out, ref)
    assert (found.mismatched, found.first_mismatches, found.max_abs_error) == (1, ((5,),), 1.0)
    assert found.where is not None


@pytest.mark.parametrize("large", [2**24, 2**31, 2**53, 2**62])
def test_integers_that_no_float_tells_apart_differ(large: int) -> None:
    import torch

    found = compare(torch.tensor([large + 1, 3]), torch.tensor([large, 3]))
    assert (found.mismatched, found.first_mismatches) == (1, ((0,),))


def test_wrong_indices_within_one_percent_are_all_mismatches() -> None:
    import torch

    found = compare(torch.tensor([5040, 4960, 100900, 7]), torch.tensor([5000, 5001, 100000, 7]))
    assert (found.mismatched, found.max_abs_error) == (3, 900.0)


def test_memory_that_nobody_wrote_is_not_true() -> None:
    import torch

    unwritten = torch.full((4,), 0xFF, dtype=torch.uint8).view(torch.bool)
    assert compare(unwritten, torch.ones(4, dtype=torch.bool)).mismatched == 4


@pytest.mark.parametrize("words", ["CUDA error: out of memory", "cudaErrorMemoryAllocation (2)"])
def test_mismatches_are_told_without_their_places_where_memory_runs_out(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate may have taken it: its wrong result must not become an error of ours."""

    torch = pytest.importorskip("torch")

    def fails(*_: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(comparison, "_first_mismatches", fails)
    found = compare_output("C", torch.zeros(4), torch.ones(4), atol=0.0, rtol=0.0)
    assert (found.mismatched, found.first_mismatches, found.where) == (4, (), None)
    words = "another error"
    with pytest.raises(RuntimeError, match="another"):
        compare_output("C", torch.zeros(4), torch.ones(4), atol=0.0, rtol=0.0)
