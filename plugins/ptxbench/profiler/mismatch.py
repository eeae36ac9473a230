"""Where an output's mismatches lie: by axis, by tile, by remainder; and whether they look like a scale or a layout.

Counts and aggregates only, never an element's value: this is what a kernel's author may be told. Tensor expressions
that run on CPU and CUDA alike, in chunks, so that they need little memory beside a workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.records.mismatch import AxisPattern, MismatchPattern, ResiduePattern, TilePattern

if TYPE_CHECKING:
    import torch

CHUNK_ELEMENTS = 1 << 22
"""Elements looked at together: some 200 MiB of temporaries."""
TILE_SHAPES = ((64, 64), (128, 128), (128, 256))
"""Output tiles that kernels for tensor cores compute per warpgroup, block or cluster. Multiples of the first."""
MODULI = (2, 4, 8, 16, 32, 64, 128, 256)
SLICES = 8
LONG_AXIS = 64
"""Axes from this size on are also told by eighths."""

_ROW_STEP = 128
"""Chunks end on whole tiles."""
_RESIDUE_PURITY = 0.99
"""Share of the mismatches that a residue pattern explains."""
_RESIDUE_SPAN = 0.75
"""Largest share of the remainders that still says something."""
_RESIDUE_RANGES = 4
_MIN_PERIODS = 3
_MIN_CORRELATED = 16
"""Pairs under which a correlation says nothing."""


class _Chunk(NamedTuple):
    """Rows ``row`` and following of matrices ``matrix`` and following, as masks [matrices, rows, columns]."""

    matrix: int
    row: int
    wrong: torch.Tensor
    nan: torch.Tensor


def values(tensor: torch.Tensor) -> torch.Tensor:
    """Elements to compute with: fp32, and fp64 of integers, of which fp32 would lose more."""
    return tensor.float() if tensor.is_floating_point() else tensor.double()


def disagree(output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float) -> torch.Tensor:
    """Mask of the mismatches: torch.allclose's element rule, evaluated in fp32. Integers agree when they are equal.

    NaN never agrees; equal infinities do. Booleans are compared by their bytes: memory that nobody wrote is not True.
    """
    import torch

    if not output.is_floating_point():
        is_bool = output.dtype == torch.bool
        return output.view(torch.uint8) != reference.view(torch.uint8) if is_bool else output != reference
    out, ref = output.float(), reference.float()
    error = (out - ref).abs_()
    agree = (error <= ref.abs().mul_(rtol).add_(atol)) & ref.isfinite()
    return ~(agree | (out == ref))


def mismatch_pattern(
    output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float
) -> MismatchPattern | None:
    """The pattern of two tensors of equal shape and dtype, by the element rule of ``compare_output``.

    None where nothing mismatches.
    """
    import torch

    if not output.numel():
        return None
    shape = tuple(output.shape) or (1,)
    rows, columns = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    out, ref = output.reshape(-1, rows, columns), reference.reshape(-1, rows, columns)
    marginals = _Marginals((out.shape[0], rows, columns), out.device)
    tiles = [_Tiles(*tile, marginals.extents) for tile in _tile_shapes(rows, columns)]
    pairs = torch.zeros(6, dtype=torch.float64, device=out.device)
    counts = torch.zeros(3, dtype=torch.int64, device=out.device)
    for matrix, row, out_part, ref_part in _chunks(out, ref):
        wrong = disagree(out_part, ref_part, atol, rtol)
        left, right = values(out_part), values(ref_part)
        chunk = _Chunk(matrix, row, wrong, left.isnan() & ~right.isnan())
        marginals.add(chunk)
        _add_tiles(tiles, chunk)
        counts += torch.stack([(wrong & (left == 0)).sum(), (wrong & left.isinf()).sum(), _above(chunk)])
        pairs += _moments(left, right, wrong & left.isfinite() & right.isfinite())
    if not marginals.total:
        return None
    zeros, infinite, above = counts.tolist()
    slope, correlation = _regression(pairs.tolist())
    return MismatchPattern(
        axes=marginals.axes(shape),
        tiles=tuple(tile.pattern() for tile in tiles),
        zeros=zeros,
        infinite=infinite,
        slope=slope,
        correlation=correlation,
        column_major=_column_major(out, ref, marginals.first_matrix()),
        above_diagonal=_rounded(above / marginals.total) if rows == columns > 1 else None,
    )


def _chunks(out: torch.Tensor, ref: torch.Tensor) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """Whole matrices where several fit into a chunk, else runs of rows of one matrix."""
    matrices, rows, columns = out.shape
    together = max(1, CHUNK_ELEMENTS // (rows * columns)) if rows * columns else 1
    step = rows if together > 1 else max(1, CHUNK_ELEMENTS // max(1, columns) // _ROW_STEP) * _ROW_STEP
    for matrix in range(0, matrices, together):
        for row in range(0, rows, step or 1):
            part = slice(matrix, matrix + together), slice(row, row + step)
            yield matrix, row, out[part], ref[part]


class _Marginals:
    """Mismatches and NaN per matrix, per row and per column."""

    def __init__(self, extents: tuple[int, int, int], device: torch.device) -> None:
        import torch

        self.extents = extents
        self._wrong = [torch.zeros(extent, dtype=torch.int64, device=device) for extent in extents]
        self._nan = [torch.zeros(extent, dtype=torch.int64, device=device) for extent in extents]

    def add(self, chunk: _Chunk) -> None:
        """Count a chunk's masks."""
        matrices, rows, _ = chunk.wrong.shape
        for sums, mask in ((self._wrong, chunk.wrong), (self._nan, chunk.nan)):
            sums[0][chunk.matrix : chunk.matrix + matrices] += mask.sum((1, 2))
            sums[1][chunk.row : chunk.row + rows] += mask.sum((0, 2))
            sums[2] += mask.sum((0, 1))

    @property
    def total(self) -> int:
        """All mismatches."""
        return int(self._wrong[2].sum())

    def first_matrix(self) -> int:
        """The first matrix with a mismatch."""
        return int(self._wrong[0].nonzero()[0, 0])

    def axes(self, shape: tuple[int, ...]) -> tuple[AxisPattern, ...]:
        """One pattern per axis of ``shape``."""
        leading = shape[:-2]
        found = []
        for axis in range(len(leading)):
            others = [other for other in range(len(leading)) if other != axis]
            wrong, nan = (sums[0].reshape(leading) for sums in (self._wrong, self._nan))
            if others:
                wrong, nan = wrong.sum(others), nan.sum(others)
            found.append(_axis(wrong.tolist(), nan.tolist(), math.prod(shape) // shape[axis]))
        for place in range(3 - min(len(shape), 2), 3):
            each = math.prod(shape) // self.extents[place]
            found.append(_axis(self._wrong[place].tolist(), self._nan[place].tolist(), each))
        return tuple(found)


def _axis(wrong: list[int], nan: list[int], each: int) -> AxisPattern:
    """``each``: elements at one position of the axis."""
    touched = [position for position, count in enumerate(wrong) if count]
    size = len(wrong)
    bounds = [size * part // SLICES for part in range(SLICES + 1)]
    return AxisPattern(
        size=size,
        touched=len(touched),
        whole=sum(count == each for count in wrong),
        nan=sum(count == each for count in nan),
        first=touched[0],
        last=touched[-1],
        residues=_residues(wrong),
        slices=tuple(_rounded(sum(wrong[a:b]) / ((b - a) * each)) for a, b in pairwise(bounds))
        if size >= LONG_AXIS
        else (),
    )


def _residues(wrong: Sequence[int]) -> ResiduePattern | None:
    """The pattern of the fewest remainders that explains the mismatches and recurs along the axis."""
    total, best, best_span = sum(wrong), None, _RESIDUE_SPAN
    for modulus in MODULI:
        if modulus * _MIN_PERIODS > len(wrong):
            break
        classes = [sum(wrong[residue::modulus]) for residue in range(modulus)]
        chosen = [residue for residue in range(modulus) if classes[residue] * 20 >= max(classes)]
        span, ranges = len(chosen) / modulus, _ranges(chosen)
        explained = sum(classes[residue] for residue in chosen) >= _RESIDUE_PURITY * total
        if span < best_span and explained and len(ranges) <= _RESIDUE_RANGES and _recurs(wrong, modulus, chosen):
            best, best_span = ResiduePattern(modulus=modulus, ranges=ranges), span
    return best


def _recurs(wrong: Sequence[int], modulus: int, chosen: Sequence[int]) -> bool:
    """Whether the mismatches spread over several periods and fill most places of the pattern that lie among them."""
    touched = [position for position, count in enumerate(wrong) if count]
    first, last = touched[0] // modulus, touched[-1] // modulus
    if last - first + 1 < _MIN_PERIODS:
        return False
    wanted = set(chosen)
    return 2 * sum(position % modulus in wanted for position in touched) >= (last - first + 1) * len(chosen)


def _ranges(positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Runs of consecutive numbers, end exclusive."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return tuple(runs)


def _tile_shapes(rows: int, columns: int) -> list[tuple[int, int]]:
    return [(height, width) for height, width in TILE_SHAPES if height <= rows and width <= columns]


class _Tiles:
    """Mismatches counted by tiles of one shape."""

    def __init__(self, rows: int, columns: int, extents: tuple[int, int, int]) -> None:
        self.rows, self.columns = rows, columns
        self._extents = extents
        self._touched = self._whole = self._nan = 0
        self._first: tuple[int, int] | None = None

    def add(self, first_row: int, wrong: torch.Tensor, nan: torch.Tensor) -> None:
        """Counts per tile [matrices, tile rows, tile columns] of a chunk that begins with row ``first_row``."""
        _, rows, columns = self._extents
        begin = first_row // self.rows
        heights = [min(self.rows, rows - (begin + tile) * self.rows) for tile in range(wrong.shape[1])]
        widths = [min(self.columns, columns - tile * self.columns) for tile in range(wrong.shape[2])]
        sizes = wrong.new_tensor(heights)[:, None] * wrong.new_tensor(widths)
        touched = wrong > 0
        self._touched += int(touched.sum())
        self._whole += int((wrong == sizes).sum())
        self._nan += int((nan == sizes).sum())
        if self._first is None and bool(touched.any()):
            _, row, column = touched.nonzero()[0].tolist()
            self._first = begin + row, column

    def pattern(self) -> TilePattern:
        """What was counted."""
        matrices, rows, columns = self._extents
        return TilePattern(
            rows=self.rows,
            columns=self.columns,
            tiles=matrices * -(-rows // self.rows) * -(-columns // self.columns),
            touched=self._touched,
            whole=self._whole,
            nan=self._nan,
            first=self._first or (0, 0),
        )


def _add_tiles(tiles: Sequence[_Tiles], chunk: _Chunk) -> None:
    if not tiles:
        return
    height, width = TILE_SHAPES[0]
    wrong, nan = (_sum_blocks(mask, height, width) for mask in (chunk.wrong, chunk.nan))
    for tile in tiles:
        factors = tile.rows // height, tile.columns // width
        tile.add(chunk.row, _sum_blocks(wrong, *factors), _sum_blocks(nan, *factors))


def _sum_blocks(counts: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Sums over blocks of the last two axes; missing rows and columns of the last blocks count as zero."""
    import torch

    matrices, rows, columns = counts.shape
    padding = (0, -columns % width, 0, -rows % height)
    padded = torch.nn.functional.pad(counts.to(torch.int32), padding)
    blocks = padded.reshape(matrices, padded.shape[1] // height, height, padded.shape[2] // width, width)
    return blocks.sum((2, 4))


def _above(chunk: _Chunk) -> torch.Tensor:
    """Mismatches of a chunk right of the diagonal."""
    return chunk.wrong.triu(chunk.row + 1).sum()


def _moments(left: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Count, sums, squares and products of the chosen pairs, fp64[6]."""
    import torch

    a = left.double().masked_fill_(~chosen, 0.0)
    b = right.double().masked_fill_(~chosen, 0.0)
    return torch.stack([chosen.sum().double(), a.sum(), b.sum(), (a * a).sum(), (b * b).sum(), (a * b).sum()])


def _regression(moments: Sequence[float]) -> tuple[float | None, float | None]:
    """Slope of the first over the second and their correlation; None where they vary too little to have one."""
    count, sum_a, sum_b, sum_aa, sum_bb, sum_ab = moments
    if count < _MIN_CORRELATED:
        return None, None
    variance_a, variance_b = sum_aa - sum_a * sum_a / count, sum_bb - sum_b * sum_b / count
    covariance = sum_ab - sum_a * sum_b / count
    # Below the rounding of the sums a variance is noise.
    if not (variance_b > 1e-9 * sum_bb and variance_a > 1e-9 * sum_aa and math.isfinite(variance_a * variance_b)):
        return None, None
    return _rounded(covariance / variance_b), _rounded(covariance / math.sqrt(variance_a * variance_b))


def _column_major(out: torch.Tensor, ref: torch.Tensor, matrix: int) -> float | None:
    """Correlation over the first rows of one matrix with its elements taken in column-major order."""
    _, rows, columns = out.shape
    if rows < 2 or columns < 2:
        return None
    taken = min(rows, max(1, CHUNK_ELEMENTS // columns))
    left = out[matrix].reshape(columns, rows)[:, :taken].T.float()
    right = ref[matrix, :taken].float()
    moments = _moments(left, right, left.isfinite() & right.isfinite())
    return _regression(moments.tolist())[1]


def _rounded(value: float) -> float:
    """Four significant digits: a description, not a measurement."""
    return float(f"{value:.4g}")
