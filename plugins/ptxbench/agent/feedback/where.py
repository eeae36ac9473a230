"""A mismatch pattern in words: on which axes, in which tiles, and what kind of error it looks like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ptxbench.agent.feedback.wording import percent
from ptxbench.records import OutputComparison
from ptxbench.records.mismatch import AxisPattern, MismatchPattern, ResiduePattern, TilePattern

_UNEVEN = 2.0
"""Ratio of the largest to the smallest share over the slices of an axis from which they are told."""
_RELATED, _SAME = 0.3, 0.98
"""Correlations below which an output has nothing, and above which it has all but a factor, of the reference."""
_TILE = 128


def axis_facts(pattern: MismatchPattern, names: Sequence[str]) -> Iterator[str]:
    """One fact for each axis on which the mismatches have a place, then one for the tiles."""
    for axis, name in zip(pattern.axes, names, strict=True):
        if axis.size > 1 and (text := "; ".join(_axis(axis, name))):
            yield f"On axis {name}: {text}."
    yield from _tiles(pattern, names)
    if pattern.above_diagonal is not None and (pattern.above_diagonal in (0.0, 1.0)):
        yield "All mismatches lie " + (
            "beyond the diagonal." if pattern.above_diagonal else "on or below the diagonal."
        )


def _tiles(pattern: MismatchPattern, names: Sequence[str]) -> Iterator[str]:
    """Nothing where an axis says it better: the mismatches are in fewer positions than a tile has, or recur in it."""
    if any(axis.touched < tile.rows or axis.residues for axis in pattern.axes[-2:] for tile in pattern.tiles[:1]):
        return
    if tiles := [tile for tile in pattern.tiles if tile.touched < tile.tiles]:
        rows, columns = names[-2:]
        yield f"By tiles ({rows} x {columns}): " + "; ".join(map(_tile, tiles)) + "."
    elif pattern.tiles:
        yield "Every tile of the output is touched, so it is not a matter of single tiles."


def _axis(axis: AxisPattern, name: str) -> Iterator[str]:
    if axis.touched == axis.size and axis.residues is None:
        if uneven := _slices(axis):
            yield f"all {axis.size:,} positions touched; {uneven}"
        return
    if axis.touched == 1:
        end = " (the first)" if axis.first == 0 else " (the last)" if axis.first == axis.size - 1 else ""
        yield f"only {name} = {axis.first}{end} of {axis.size:,}"
    elif axis.residues is not None:
        yield f"only {_residues(axis.residues, name)}"
        if axis.first >= axis.residues.modulus or axis.size - axis.last > axis.residues.modulus:
            yield f"from {axis.first} to {axis.last} of {axis.size:,}"
    else:
        yield f"{axis.touched:,} of {axis.size:,} positions touched, from {axis.first} to {axis.last}"
        yield from _ends(axis)
        if uneven := _slices(axis):
            yield uneven
    if axis.nan and axis.touched > 1:
        yield f"{axis.nan:,} positions are NaN throughout"
    elif axis.nan:
        yield "NaN throughout"
    elif 1 < axis.touched == axis.whole:
        yield "each of them wrong throughout"


def _ends(axis: AxisPattern) -> Iterator[str]:
    partial = axis.size % _TILE
    if partial and axis.first >= axis.size - partial:
        yield f"which is the last, partial tile of {_TILE}"
    elif axis.touched == axis.last - axis.first + 1:
        if axis.first and axis.last == axis.size - 1:
            yield f"the first {axis.first:,} positions are right"
        elif axis.first == 0 and axis.last < axis.size - 1:
            yield f"the last {axis.size - 1 - axis.last:,} positions are right"


def _slices(axis: AxisPattern) -> str:
    if not axis.slices or max(axis.slices) < _UNEVEN * min(axis.slices):
        return ""
    return "wrong in its eighths: " + ", ".join(map(percent, axis.slices))


def _residues(residues: ResiduePattern, name: str) -> str:
    modulus = residues.modulus
    if len(residues.ranges) == 1:
        begin, end = residues.ranges[0]
        if end - begin == 1:
            return f"positions with {name} % {modulus} == {begin}"
        if end == modulus:
            return f"positions with {name} % {modulus} >= {begin}"
        if begin == 0:
            return f"positions with {name} % {modulus} < {end}"
    spans = [str(begin) if end - begin == 1 else f"{begin}-{end - 1}" for begin, end in residues.ranges]
    return f"positions with {name} % {modulus} in {', '.join(spans)}"


def _tile(tile: TilePattern) -> str:
    whole = f", {tile.whole:,} of them wrong throughout" if tile.whole else ", none of them wrong throughout"
    nan = f", {tile.nan:,} NaN throughout" if tile.nan else ""
    return (
        f"{tile.rows}x{tile.columns}: {tile.touched:,} of {tile.tiles:,} touched{whole}{nan}, "
        f"the first in tile row {tile.first[0]}, tile column {tile.first[1]}"
    )


def kind_facts(output: OutputComparison, head_size: int | None) -> Iterator[str]:
    """What the wrong elements have in common: never written, zero, scaled, unrelated, in another order."""
    if output.nan:
        all_of = "all of them" if output.nan == output.mismatched else f"{output.nan:,} of them"
        yield f"{all_of} are NaN; outputs start as NaN, so an element that is never written stays NaN"
    pattern = output.where
    if pattern is None:
        return
    if pattern.zeros:
        yield f"{pattern.zeros:,} of the wrong elements are exactly 0"
    if pattern.infinite:
        yield f"{pattern.infinite:,} of the wrong elements are infinite"
    if pattern.column_major is not None and pattern.column_major > _SAME:
        yield "read in column-major order the output is right: rows and columns are swapped when it is written"
    elif pattern.correlation is not None and pattern.slope is not None:
        yield _relation(pattern.correlation, pattern.slope, head_size)


def _relation(correlation: float, slope: float, head_size: int | None) -> str:
    if abs(correlation) < _RELATED:
        return (
            f"the wrong elements have little to do with the reference (correlation {correlation:.2f}): other data was "
            "used, for example by a wrong tile index, descriptor, swizzle or fragment layout"
        )
    if abs(correlation) < _SAME:
        return (
            f"the wrong elements follow the reference only in part (correlation {correlation:.2f}, slope {slope:.3g})"
        )
    if slope < 0:
        return f"the wrong elements have the wrong sign (slope {slope:.3g})"
    if abs(slope - 1) > 0.03:
        return f"the wrong elements are the right ones times about {slope:.4g}{_factor(slope, head_size)}"
    return f"the wrong elements follow the reference closely (correlation {correlation:.4f}, slope {slope:.4g})"


def _factor(slope: float, head_size: int | None) -> str:
    known = {math.log2(math.e): "log2(e): base 2 instead of natural", math.log(2): "ln 2: natural instead of base 2"}
    if head_size:
        known |= {head_size**-0.5: "1/sqrt(D), the softmax scale", head_size**0.5: "sqrt(D), the softmax scale missing"}
    name = next((name for factor, name in known.items() if abs(slope / factor - 1) < 0.01), None)
    return f" ({name})" if name else ""
