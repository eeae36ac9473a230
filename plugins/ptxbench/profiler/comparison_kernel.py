"""The comparison's statistics in one pass on the device: some twenty times the speed of tensor expressions.

The tensor expressions in comparison.py and blocks.py are the specification; a GPU test holds these kernels to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxbench.profiler.device_code import POINTER, REAL, WORD, Launch, function, processors

if TYPE_CHECKING:
    import torch

    from ptxbench.profiler.blocks import Blocks

SOURCE = "comparison_kernel.cu"
BLOCKS_PER_SM = 8


def statistics(output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float) -> torch.Tensor:
    """Mismatches, NaN, sums of squared error and of squared reference, max abs and max rel error: fp64[6].

    Contiguous CUDA tensors of equal shape and supported dtype; asynchronous.
    """
    import torch

    kernel = function(SOURCE, str(output.dtype).removeprefix("torch."), "compare")
    found = torch.zeros(6, dtype=torch.float64, device=output.device)
    values = (output.data_ptr(), reference.data_ptr(), output.numel(), atol, rtol, found.data_ptr())
    Launch(kernel, processors() * BLOCKS_PER_SM, values, (POINTER, POINTER, WORD, REAL, REAL, POINTER))()
    return found


def block_sums(output: torch.Tensor, reference: torch.Tensor, blocks: Blocks) -> torch.Tensor:
    """Sums of squares of error and of reference, per block: fp64 [2, outer, tiles, inner].

    Contiguous CUDA tensors of equal shape and supported dtype; asynchronous.
    """
    import torch

    kernel = function(SOURCE, str(output.dtype).removeprefix("torch."), "block_sums")
    rows, tiles = blocks.tile_of_row.numel(), blocks.elements.numel()
    found = torch.zeros((2, blocks.outer, tiles, blocks.inner), dtype=torch.float64, device=output.device)
    cells = blocks.outer * rows * blocks.inner
    sizes = (cells, blocks.width, rows, blocks.inner, tiles)
    values = (output.data_ptr(), reference.data_ptr(), *sizes, blocks.tile_of_row.data_ptr(), found.data_ptr())
    Launch(kernel, processors() * BLOCKS_PER_SM, values, (POINTER, POINTER, *(WORD,) * 5, POINTER, POINTER))()
    return found
