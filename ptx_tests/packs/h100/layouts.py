"""Models of Hopper's layouts, from the PTX ISA's formulas and independent of the pack's code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_LAYOUT_TYPE = {16: 0, 128: 1, 64: 2, 32: 3}
_REPEAT_ROWS = {32: 4, 64: 2, 128: 1}
"""Rows of `span` bytes that share one value of the pattern: it advances every 128 bytes."""


def swizzled(span: int, row: int, byte: int) -> int:
    """Where byte ``byte`` of row ``row`` lies, for rows of ``span`` bytes swizzled over ``span`` (16: not at all)."""
    if span == 16:
        return row * span + byte
    chunks = span // 16
    chunk, rest = divmod(byte, 16)
    return row * span + 16 * (chunk ^ (row // _REPEAT_ROWS[span] % chunks)) + rest


def swizzle_box(rows: Bytes, span: int) -> Bytes:
    """A box [rows, span bytes] as it lies in shared memory, flat."""
    out = np.zeros(rows.size, np.uint8)
    for row in range(rows.shape[0]):
        for start in range(0, span, 16):
            at = swizzled(span, row, start)
            out[at : at + 16] = rows[row, start : start + 16]
    return out


def boxes(matrix: npt.NDArray[np.uint16], span: int) -> Bytes:
    """A matrix of 16-bit elements [rows, columns] cut into boxes of ``span`` bytes of columns, one after the other."""
    width = span // 2
    columns = -(-matrix.shape[1] // width) * width
    padded = np.zeros((matrix.shape[0], columns), np.uint16)
    padded[:, : matrix.shape[1]] = matrix
    parts = [
        swizzle_box(np.ascontiguousarray(padded[:, at : at + width]).view(np.uint8), span)
        for at in range(0, columns, width)
    ]
    return np.concatenate(parts)


def descriptor(span: int, addr: int, lbo: int, sbo: int) -> int:
    """Bits 0-13 address, 16-29 leading, 32-45 stride byte offset, all over 16; 62-63 the swizzle mode."""
    fields = ((addr, 0), (lbo, 16), (sbo, 32))
    return sum(((value >> 4) % (1 << 14)) << at for value, at in fields) + (_LAYOUT_TYPE[span] << 62)


def accumulator(thread: int, i: int) -> tuple[int, int]:
    """Row and column of accumulator ``i`` of a thread of the warpgroup."""
    warp, lane = divmod(thread, 32)
    column_group, within = divmod(i, 4)
    return 16 * warp + lane // 4 + (8 if within >= 2 else 0), 8 * column_group + 2 * (lane % 4) + within % 2


def to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Bits of BF16, rounded to nearest even. No NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Values of BF16 bits."""
    return (np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)
