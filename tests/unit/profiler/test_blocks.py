"""Errors of an output's blocks: the specification against a loop, and what they see and do not see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.cases import load_suite
from ptxbench.cases.structure import Structure
from ptxbench.profiler.blocks import ROWS, SCALE_FLOOR, blocks_of, worst_error
from ptxbench.verdict.precision import block_bound
from tests.support.small_cases import ROOT, small_case

DECODE = "gqa_paged_decode_h24_kv8_d128_ps1"
LIBRARY_WORST = 4e-3


def cut(*shape: int, lengths: tuple[int, ...] = ()) -> Any:
    """The blocks of an output of this shape; with lengths, of sequences."""
    structure = Structure(lengths, lengths, causal=True) if lengths else None
    case: Any = SimpleNamespace(structure=lambda _: structure, output_shapes=lambda: {"out": shape})
    return blocks_of(case, "structure", "cpu")["out"]


def rounded(reference: torch.Tensor, error: float, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(reference.shape, generator=torch.Generator().manual_seed(seed))
    return reference * (1 + error * noise)


def worst(output: torch.Tensor, reference: torch.Tensor, blocks: Any) -> float:
    return float(worst_error(output, reference, blocks))


def slow(output: torch.Tensor, reference: torch.Tensor, parts: list[tuple[Any, ...]]) -> float:
    whole = float(reference.double().square().mean().sqrt())
    errors = [
        float((output[part] - reference[part]).double().square().mean().sqrt())
        / max(float(reference[part].double().square().mean().sqrt()), SCALE_FLOOR * whole)
        for part in parts
    ]
    return max(errors)


def tiles(*lengths: int) -> list[slice]:
    found, first = [], 0
    for length in lengths:
        found += [slice(row, min(row + ROWS, first + length)) for row in range(first, first + length, ROWS)]
        first += length
    return found


@pytest.mark.parametrize("lengths", [(1, 0, 2, 150, 64, 65), (3,), (0, 1)])
@pytest.mark.parametrize("width", [(), (8,)])
def test_blocks_of_sequences_are_rows_of_one_sequence_and_one_head(lengths, width):
    shape = (sum(lengths), 3, *width)
    reference = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    output = rounded(reference, 0.01)
    parts = [(rows, head) for rows in tiles(*lengths) for head in range(3)]
    assert worst(output, reference, cut(*shape, lengths=lengths)) == pytest.approx(slow(output, reference, parts))


@pytest.mark.parametrize("width", [(), (8,)])
def test_blocks_of_attention_are_rows_of_one_head(width):
    shape = (2, 3, 70, *width)
    reference = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    output = rounded(reference, 0.01)
    parts = [(batch, head, rows) for batch in range(2) for head in range(3) for rows in tiles(70)]
    assert worst(output, reference, cut(*shape)) == pytest.approx(slow(output, reference, parts))


@pytest.mark.parametrize(("columns", "width"), [(256, 128), (250, 125), (96, 96), (7, 7), (131, 131), (5120, 128)])
def test_blocks_of_a_product_are_rows_and_columns(columns, width):
    reference = torch.randn((70, columns), generator=torch.Generator().manual_seed(3))
    output = rounded(reference, 0.01)
    parts = [(rows, slice(left, left + width)) for rows in tiles(70) for left in range(0, columns, width)]
    assert worst(output, reference, cut(70, columns)) == pytest.approx(slow(output, reference, parts))


def test_a_long_sequence_of_zeros_among_short_ones_is_seen():
    """What one number for the whole output cannot see: one row of 15, and a hundredth of the others' size."""
    case = load_suite(ROOT, "generalization").case(DECODE, "h100")
    structure = case.structure("adversarial")
    assert structure is not None
    long = structure.kv_lengths.index(max(structure.kv_lengths))
    shape = case.output_shapes()["output"]
    reference = torch.randn(shape) / torch.tensor(structure.kv_lengths).sqrt()[:, None, None]
    output = reference.clone()
    output[long] = 0
    whole = float((output - reference).square().mean().sqrt() / reference.square().mean().sqrt())
    assert whole < 0.01
    found = worst(output, reference, blocks_of(case, "structure", "cpu")["output"])
    assert found > 10 * block_bound(LIBRARY_WORST, "bfloat16")


def test_one_head_in_fp8_is_seen():
    reference = torch.randn(1, 16, 256, 64)
    honest = rounded(reference, 2.5e-3).bfloat16().float()
    assert worst(honest, reference, cut(1, 16, 256, 64)) < LIBRARY_WORST
    honest[:, 5] = rounded(reference[:, 5], 0.025)
    assert float((honest - reference).square().mean().sqrt()) < 4 * 2.5e-3
    assert worst(honest, reference, cut(1, 16, 256, 64)) > block_bound(LIBRARY_WORST, "bfloat16")


def test_a_block_of_next_to_nothing_makes_no_noise():
    reference = torch.ones(128, 2)
    reference[64:, 1] = 1e-6
    output = reference.clone()
    output[64:, 1] = 1e-4  # a hundred times its own size, a ten thousandth of the output's
    assert worst(output, reference, cut(128, 2, lengths=(128,))) == pytest.approx(
        1e-4 / (SCALE_FLOOR * float(reference.square().mean().sqrt())), rel=0.02
    )


@pytest.mark.parametrize(("output", "expected"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_reference_of_zeros(output, expected):
    assert worst(torch.full((4, 32), output), torch.zeros(4, 32), cut(4, 32)) == expected


def test_what_is_not_finite_counts_as_zero():
    reference = torch.ones(2, 32)
    output = reference.clone()
    output[0, 0], output[1, 1], reference[1, 1] = torch.nan, torch.inf, torch.inf
    assert worst(output, reference, cut(2, 32)) == 0.0


def test_every_family_has_its_own_sequences():
    case = small_case("gqa_ragged_prefill_causal_h32_kv4_d128")
    official, adversarial = (blocks_of(case, family, "cpu")["output"] for family in ("shifted", "structure"))
    assert not torch.equal(official.tile_of_row, adversarial.tile_of_row)
