"""Occupancy, against values of the CUDA occupancy calculator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.feedback.occupancy import SmLimits, largest_block, occupancy, sm_limits

HOPPER = SmLimits(2048, 32, 65_536, 233_472, 232_448)


@pytest.mark.parametrize(
    ("threads", "registers", "smem", "blocks", "bound_by"),
    [
        (128, 208, 98_304, 2, "registers and shared memory"),
        (384, 168, 230_464, 1, "registers and shared memory"),
        (256, 22, 0, 8, "threads"),
        (32, 16, 0, 32, "the number of blocks"),
        (1024, 64, 0, 1, "registers"),
        (1024, 32, 0, 2, "threads and registers"),
        (128, 32, 100_000, 2, "shared memory"),
        (128, 255, 0, 2, "registers"),
        (512, 255, 0, 0, "registers"),
        (128, 32, 232_449, 0, "shared memory"),
        (1025, 16, 0, 0, "threads"),
    ],
)
def test_blocks_per_sm(threads: int, registers: int, smem: int, blocks: int, bound_by: str) -> None:
    found = occupancy(threads, registers, smem, HOPPER)
    assert (found.blocks, found.bound_by) == (blocks, bound_by)
    assert found.warps == blocks * -(-threads // 32)
    assert found.share == pytest.approx(found.warps / 64)


@given(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 232_448))
def test_more_of_anything_never_allows_more_blocks(threads: int, registers: int, smem: int) -> None:
    found = occupancy(threads, registers, smem, HOPPER).blocks
    assert occupancy(threads, min(255, registers + 9), smem, HOPPER).blocks <= found
    assert occupancy(threads, registers, min(232_448, smem + 999), HOPPER).blocks <= found
    assert found * threads <= 2048
    assert found * threads * registers <= 65_536


def test_the_largest_block_has_its_registers() -> None:
    assert largest_block(208, HOPPER) == 256
    assert largest_block(168, HOPPER) == 384
    assert largest_block(24, HOPPER) == 1024


def test_other_architectures_are_not_guessed() -> None:
    assert sm_limits((8, 0)) is None
    assert sm_limits((9, 0)) == sm_limits((10, 0)) == HOPPER
