"""Errors of an output's blocks: what one number for a whole output cannot see.

Where a few rows are large, as those of short sequences are, they make nearly all of an output's size: all of a long
sequence may be zero and the whole output's error be below 1%. So an output is cut into blocks, each of up to ``ROWS``
rows of one sequence and one head (of a product: of ``COLUMNS`` columns), and the worst of them is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.profiler import comparison_kernel
from ptxbench.profiler.device_code import supported

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

ROWS = 64
"""Rows of a block: the height of the smallest tile that tensor-core kernels compute at once."""
COLUMNS = (32, 128)
"""Least and most columns of a block of a product."""
SCALE_FLOOR = 1.0 / 16
"""Share of the whole output's RMS that counts as a block's size where its own is smaller. What is nearly nothing, such
as the LSE of one key or a gradient whose terms cancel, is not measured by itself: rounding alone would make it wrong.
A block of zeros is seen down to a thousandth of the output's size: 1/16 of the gate's bound of about 1.2%."""


class Blocks(NamedTuple):
    """How an output is cut. In memory it is [outer, rows, inner, width]; a block is one tile of the rows at one place
    of the outer and the inner axis, whole in the last."""

    outer: int
    inner: int
    width: int
    tile_of_row: torch.Tensor
    """[rows] int32, on the output's device."""
    elements: torch.Tensor
    """Of a block of each tile: [tiles, 1] fp64."""


def blocks_of(case: Case, family: str, device: str = "cuda") -> dict[str, Blocks]:
    """The blocks of every output of a case that has families."""
    structure = case.structure("adversarial" if family == "structure" else "official")
    lengths = structure.q_lengths if structure is not None else None
    return {name: _cut(shape, lengths, device) for name, shape in case.output_shapes().items()}


def _cut(shape: tuple[int, ...], q_lengths: tuple[int, ...] | None, device: str) -> Blocks:
    """An output with sequences is [queries, heads(, D)]; others are [B,H,S(,D)] of attention or [M,N] of a product."""
    if q_lengths is not None:
        return _blocks(1, shape[1], shape[2] if len(shape) > 2 else 1, q_lengths, device)
    if len(shape) == 2:
        width = _width(shape[1])
        return _blocks(1, shape[1] // width, width, (shape[0],), device)
    return _blocks(shape[0] * shape[1], 1, shape[3] if len(shape) > 3 else 1, (shape[2],), device)


def _width(columns: int) -> int:
    """The most columns that divide all evenly, or all of them."""
    least, most = COLUMNS
    return next((width for width in range(most, least - 1, -1) if columns % width == 0), columns)


def _blocks(outer: int, inner: int, width: int, lengths: Sequence[int], device: str) -> Blocks:
    import torch

    counts = [-(-length // ROWS) for length in lengths]
    firsts = accumulate(counts, initial=0)
    tiles = [first + row // ROWS for first, length in zip(firsts, lengths, strict=False) for row in range(length)]
    tile_of_row = torch.tensor(tiles, dtype=torch.int32)
    elements = torch.bincount(tile_of_row, minlength=sum(counts)).double().mul(width).unsqueeze(1)
    return Blocks(outer, inner, width, tile_of_row.to(device), elements.to(device))


def worst_error(output: torch.Tensor, reference: torch.Tensor, blocks: Blocks) -> torch.Tensor:
    """The largest scale-relative error among the blocks of an output: fp64 [1]; asynchronous on a device.

    Of a block, the RMS of its error over that of its reference, or over ``SCALE_FLOOR`` times the whole reference's.
    What is not finite counts as zero, as in ``measure``.
    """
    on_device = output.is_cuda and supported(str(output.dtype).removeprefix("torch."))
    sums = (comparison_kernel.block_sums if on_device else block_sums)(output, reference, blocks)
    errors, references = sums / blocks.elements
    scale = references.clamp_min(sums[1].sum() * (SCALE_FLOOR**2 / reference.numel()))
    return (errors / scale).nan_to_num_(nan=0.0, posinf=1.0).max().sqrt().reshape(1)


def block_sums(output: torch.Tensor, reference: torch.Tensor, blocks: Blocks) -> torch.Tensor:
    """Sums of squares of error and of reference, per block: [2, outer, tiles, inner] fp64.

    The specification of the device's kernel.
    """
    import torch

    ref = reference.float()
    pair = torch.stack([output.float() - ref, ref]).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    rows, tiles = blocks.tile_of_row.numel(), blocks.elements.numel()
    cells = pair.double().square_().view(2, blocks.outer, rows, blocks.inner, blocks.width).sum(-1)
    sums = torch.zeros((2, blocks.outer, tiles, blocks.inner), dtype=torch.float64, device=output.device)
    return sums.index_add_(2, blocks.tile_of_row, cells)
