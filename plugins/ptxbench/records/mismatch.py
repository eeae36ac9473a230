"""Where an output's mismatches lie, as records. ``ptxbench.profiler.mismatch`` finds it."""

from __future__ import annotations

from ptxbench.records.base import Real, Record


class ResiduePattern(Record):
    """Mismatches lie only at positions whose remainder by ``modulus`` is in one of ``ranges`` (end exclusive)."""

    modulus: int
    ranges: tuple[tuple[int, int], ...]


class AxisPattern(Record):
    """Mismatches of one output by their position on one axis."""

    size: int
    touched: int
    """Positions with a mismatch."""
    whole: int
    """Positions with nothing but mismatches."""
    nan: int
    """Positions with nothing but NaN that the reference does not have."""
    first: int
    last: int
    """Of the touched positions."""
    residues: ResiduePattern | None = None
    slices: tuple[float, ...] = ()
    """Share of elements that mismatch in each eighth of a long axis."""


class TilePattern(Record):
    """Mismatches by tiles of ``rows`` x ``columns`` over the last two axes; tiles at the edges may be smaller."""

    rows: int
    columns: int
    tiles: int
    touched: int
    whole: int
    """Tiles with nothing but mismatches."""
    nan: int
    """Tiles with nothing but NaN."""
    first: tuple[int, int]
    """Row and column, in tiles, of the first touched tile in row-major order."""


class MismatchPattern(Record):
    """Where the mismatches of one output lie, and what they have in common. No value of any element.

    Rows and columns are the last two axes of the output; the axes before them count matrices.
    """

    axes: tuple[AxisPattern, ...]
    tiles: tuple[TilePattern, ...] = ()
    zeros: int
    """Mismatches where the output is exactly zero."""
    infinite: int
    """Mismatches where the output is infinite."""
    slope: Real | None = None
    """Least-squares slope of output over reference, over mismatches that are finite in both."""
    correlation: Real | None = None
    """Of the same pairs."""
    column_major: Real | None = None
    """Correlation with the reference of the first wrong matrix when it is read in column-major order."""
    above_diagonal: float | None = None
    """Share of the mismatches right of the diagonal; square matrices only."""
