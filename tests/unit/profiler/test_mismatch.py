"""Where mismatches lie: planted errors must be found where they were planted."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.profiler import mismatch
from ptxbench.profiler.comparison import compare_output
from ptxbench.profiler.mismatch import mismatch_pattern
from ptxbench.records import OutputComparison
from ptxbench.records.mismatch import AxisPattern, MismatchPattern

if TYPE_CHECKING:
    import torch

NAN = math.nan
Plant = Callable[["torch.Tensor"], object]


def random(*shape: int) -> "torch.Tensor":
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def pattern(out: "torch.Tensor", ref: "torch.Tensor") -> MismatchPattern | None:
    return mismatch_pattern(out, ref, atol=1e-2, rtol=1e-2)


def planted(plant: Plant, *shape: int) -> MismatchPattern:
    ref = random(*shape)
    out = ref.clone()
    plant(out)
    found = pattern(out, ref)
    assert found is not None
    return found


def last_two(found: MismatchPattern) -> tuple[AxisPattern, AxisPattern]:
    return found.axes[-2], found.axes[-1]


def test_agreement_has_no_pattern() -> None:
    assert pattern(random(8, 8), random(8, 8)) is None
    assert pattern(random(0, 8), random(0, 8)) is None
    assert compare_output("C", random(8, 8), random(8, 8), atol=1e-2, rtol=1e-2).where is None


def test_a_comparison_with_mismatches_has_one() -> None:
    found = compare_output("C", random(8, 8) + 1, random(8, 8), atol=1e-2, rtol=1e-2)
    assert found.where == pattern(random(8, 8) + 1, random(8, 8))


def test_unwritten_last_row() -> None:
    found = planted(lambda out: out[-1].fill_(NAN), 512, 256)
    rows, columns = last_two(found)
    assert (rows.size, rows.touched, rows.whole, rows.nan, rows.first, rows.last) == (512, 1, 1, 1, 511, 511)
    assert (columns.touched, columns.whole, columns.nan) == (256, 0, 0)
    assert rows.residues is None
    assert [(tile.rows, tile.columns, tile.tiles, tile.touched, tile.whole, tile.nan) for tile in found.tiles] == [
        (64, 64, 32, 4, 0, 0),
        (128, 128, 8, 2, 0, 0),
        (128, 256, 4, 1, 0, 0),
    ]
    assert found.tiles[0].first == (7, 0)
    assert found.slope is None


def test_unwritten_tile_is_a_whole_tile_of_nan() -> None:
    found = planted(lambda out: out[128:256, 64:128].fill_(NAN), 512, 256)
    assert [(tile.touched, tile.whole, tile.nan, tile.first) for tile in found.tiles] == [
        (2, 2, 2, (2, 1)),
        (1, 0, 0, (1, 0)),
        (1, 0, 0, (1, 0)),
    ]


def test_last_partial_tile() -> None:
    found = planted(lambda out: out[448:, 192:].fill_(7.0), 500, 200)
    assert [(tile.rows, tile.columns, tile.touched, tile.whole) for tile in found.tiles] == [
        (64, 64, 1, 1),
        (128, 128, 1, 0),
    ]
    assert found.tiles[0].first == (7, 3)
    rows, columns = last_two(found)
    assert (rows.first, rows.last, columns.first, columns.last) == (448, 499, 192, 199)


@pytest.mark.parametrize(
    ("modulus", "chosen", "ranges"),
    [
        (16, range(8, 16), ((8, 16),)),
        (8, [3], ((3, 4),)),
        (2, [1], ((1, 2),)),
        (64, [*range(16), *range(32, 48)], None),  # the same as remainders by 32
        (128, range(64, 128), ((64, 128),)),
        (8, [2, 3, 6, 7], None),
        (256, range(128), ((0, 128),)),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_remainders(axis: int, modulus: int, chosen: list[int], ranges: tuple[tuple[int, int], ...] | None) -> None:
    def plant(out: "torch.Tensor") -> None:
        for position in range(out.shape[axis]):
            if position % modulus in chosen:
                out.select(axis, position).add_(3.0)

    found = planted(plant, 1024, 1024).axes[axis].residues
    assert found is not None
    assert {position for begin, end in found.ranges for position in range(begin, end)} == {
        position % found.modulus for position in range(1024) if position % modulus in chosen
    }
    if ranges:
        assert (found.modulus, found.ranges) == (modulus, ranges)
    else:
        assert found.modulus < modulus


@pytest.mark.parametrize(
    "plant",
    [
        lambda out: out.add_(3.0),
        lambda out: out[100].add_(3.0),
        lambda out: out[256:512].add_(3.0),
        lambda out: out[3:701:697].add_(3.0),
        lambda out: out.masked_fill_(random(1024, 1024) > 3, 9.0),
    ],
    ids=["everywhere", "one row", "one range", "two rows", "scattered"],
)
def test_no_pattern_of_remainders_where_there_is_none(plant: Plant) -> None:
    assert planted(plant, 1024, 1024).axes[0].residues is None


def test_batches_and_heads_are_axes() -> None:
    found = planted(lambda out: out[:, 1::2, 128:].fill_(0.0), 2, 12, 256, 64)
    batch, heads, rows, columns = found.axes
    assert (batch.touched, heads.touched, heads.first, heads.last) == (2, 6, 1, 11)
    assert heads.residues is not None
    assert (heads.residues.modulus, heads.residues.ranges) == (2, ((1, 2),))
    assert (rows.first, rows.last) == (128, 255)
    assert rows.slices[:4] == (0.0,) * 4
    assert min(rows.slices[4:]) > 0.45
    assert columns.touched == 64
    assert found.zeros == pytest.approx(6 * 2 * 128 * 64, rel=0.05)


@pytest.mark.parametrize("shape", [(300,), (), (3, 50), (2, 3, 70)])
def test_any_number_of_axes(shape: tuple[int, ...]) -> None:
    found = planted(lambda out: out.fill_(9.0), *shape)
    assert [axis.size for axis in found.axes] == list(shape or (1,))
    assert all(axis.touched == axis.whole == axis.size for axis in found.axes)


def test_scale_factor() -> None:
    found = planted(lambda out: out.mul_(0.125), 256, 256)
    assert found.slope == pytest.approx(0.125, rel=1e-3)
    assert found.correlation == pytest.approx(1.0, abs=1e-3)


def test_unrelated_output_does_not_correlate() -> None:
    import torch

    other = torch.randn(256, 256, generator=torch.Generator().manual_seed(99))
    found = planted(lambda out: out.copy_(other), 256, 256)
    assert abs(found.correlation or 1.0) < 0.05
    assert abs(found.column_major or 1.0) < 0.05


@pytest.mark.parametrize("shape", [(128, 128), (96, 160), (2, 64, 32)])
def test_output_written_column_major(shape: tuple[int, ...]) -> None:
    ref = random(*shape)
    found = pattern(ref.transpose(-1, -2).contiguous().reshape(shape), ref)
    assert found is not None
    assert found.column_major == pytest.approx(1.0, abs=1e-3)
    assert abs(found.correlation or 1.0) < 0.2


def test_beyond_the_diagonal() -> None:
    import torch

    found = planted(lambda out: out.add_(torch.ones_like(out).triu(1) * 5), 256, 256)
    assert found.above_diagonal == 1.0
    assert planted(lambda out: out.add_(5), 256, 256).above_diagonal == pytest.approx(0.498, abs=1e-3)
    assert planted(lambda out: out.add_(5), 256, 128).above_diagonal is None


def test_infinities_and_zeros_are_counted() -> None:
    def plant(out: "torch.Tensor") -> None:
        out[0, :5] = math.inf
        out[1, :7] = 0.0

    ref = random(4, 64).abs() + 1
    out = ref.clone()
    plant(out)
    found = pattern(out, ref)
    assert found is not None
    assert (found.infinite, found.zeros) == (5, 7)
    assert found.correlation is None  # 7 pairs say nothing


@settings(max_examples=60)
@given(data=st.data())
def test_counts_are_those_of_the_mask_in_any_chunks(data: st.DataObject) -> None:
    import torch

    leading = data.draw(st.lists(st.integers(1, 5), max_size=2))
    shape = [*leading, data.draw(st.integers(1, 300)), data.draw(st.integers(1, 80))]
    seed = data.draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    ref = torch.randn(shape, generator=generator).bfloat16()
    noise = torch.rand(shape, generator=generator)
    out = torch.where(noise < data.draw(st.sampled_from([0.001, 0.3, 1.0])), ref + 1, ref)
    out[noise > 0.95] = NAN
    whole = pattern(out, ref)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mismatch, "CHUNK_ELEMENTS", data.draw(st.integers(1, 40_000)))
        parts = pattern(out, ref)
    compared = compare_output("C", out, ref, atol=1e-2, rtol=1e-2)
    if not compared.mismatched:
        assert whole is parts is None
        return
    assert whole is not None
    assert parts is not None
    apart = {"slope", "correlation", "column_major"}
    assert parts.model_dump(exclude=apart) == whole.model_dump(exclude=apart)
    expect_counts(whole, ~torch.isclose(out.float(), ref.float(), atol=1e-2, rtol=1e-2))


def expect_counts(whole: MismatchPattern, wrong: "torch.Tensor") -> None:
    """The pattern's counts by axis and by the first tile are those of a mask."""
    shape = wrong.shape
    for axis, found in enumerate(whole.axes):
        counts = wrong.sum([other for other in range(len(shape)) if other != axis])
        assert found.touched == int((counts > 0).sum())
        assert found.whole == int((counts == wrong.numel() // shape[axis]).sum())
    if whole.tiles:
        rows, columns = math.ceil(shape[-2] / 64), math.ceil(shape[-1] / 64)
        flat = wrong.reshape(-1, *shape[-2:])
        blocks = [
            block
            for matrix in flat
            for r in range(rows)
            for c in range(columns)
            if (block := matrix[r * 64 : r * 64 + 64, c * 64 : c * 64 + 64]) is not None
        ]
        assert whole.tiles[0].tiles == len(blocks)
        assert whole.tiles[0].touched == sum(bool(block.any()) for block in blocks)
        assert whole.tiles[0].whole == sum(bool(block.all()) for block in blocks)


def test_json_stays_small_and_comes_back() -> None:
    ref = random(4, 48, 300, 128)
    out = ref * 1.5
    out[:, ::2, 1::2, 64:] = NAN
    found = compare_output("O", out, ref, atol=1e-2, rtol=1e-2)
    assert found.where is not None
    assert len(found.where.model_dump_json()) < 2000
    assert OutputComparison.model_validate_json(found.model_dump_json()) == found


def test_evidence_without_a_pattern_still_loads() -> None:
    found = compare_output("C", random(8, 8), random(8, 8), atol=1e-2, rtol=1e-2)
    old = json.loads(found.model_dump_json())
    del old["where"]
    assert OutputComparison.model_validate_json(json.dumps(old)) == found
