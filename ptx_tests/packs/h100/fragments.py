"""Packing, transcendentals, reductions, 8 x 8 matrices, and the ways accumulators leave."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ptx_tests.packs.h100 import layouts
from ptx_tests.packs.program import Program


def packing(program: Program) -> None:
    rng = np.random.default_rng(1)
    low, high = (
        np.concatenate([rng.standard_normal(5000) * 10.0**p for p in (-3, 0, 3)]).astype(np.float32) for _ in "12"
    )
    # Ties of BF16, which go to the even neighbour.
    low[:4], high[:4] = (1.00390625, 1.01171875, -1.00390625, 0.0), (3.0, -0.0, 1.01171875, 65504.0)
    bf16, f16 = np.zeros(15000, np.uint32), np.zeros(15000, np.uint32)
    program.packing(low, high, bf16, f16)
    assert (bf16 == layouts.to_bf16(low) + (layouts.to_bf16(high).astype(np.uint32) << 16)).all()
    halves = [x.astype(np.float16).view(np.uint16).astype(np.uint32) for x in (low, high)]
    assert (f16 == halves[0] + (halves[1] << 16)).all()


def transcendental(program: Program) -> None:
    values = np.concatenate([np.linspace(-120, 120, 20001), [0.0, -np.inf, 1.0, np.inf]]).astype(np.float32)
    exp2, log2 = np.zeros_like(values), np.zeros_like(values)
    program.transcendental(values, exp2, log2)
    wide = values.astype(np.float64)
    np.testing.assert_allclose(exp2[:-4], np.exp2(wide[:-4]), rtol=2.0**-21)
    np.testing.assert_allclose(exp2[-4:], [1.0, 0.0, 2.0, np.inf], rtol=2.0**-21)
    positive = wide > 0
    np.testing.assert_allclose(log2[positive], np.log2(wide[positive]), rtol=2.0**-20, atol=2.0**-21)


def reductions(program: Program) -> None:
    values = np.random.default_rng(2).integers(-1000, 1000, 128).astype(np.float32)
    out = np.zeros((4, 128), np.float32)
    program.reductions(values, out)
    quads, warps = values.reshape(32, 4), values.reshape(4, 32)
    expected = [quads.max(1).repeat(4), quads.sum(1).repeat(4), warps.max(1).repeat(32), warps.sum(1).repeat(32)]
    assert (out == np.stack(expected)).all()


def matrices(program: Program) -> None:
    rng = np.random.default_rng(3)
    registers, memory = (rng.integers(0, 1 << 32, (32, 4), np.uint32) for _ in "12")
    stored, loaded = np.zeros((3, 4, 8, 8), np.uint16), np.zeros((3, 32, 4), np.uint32)
    program.matrices(registers, memory, stored.view(np.uint32), loaded)
    # Register i of lane l holds row l / 4, columns 2 (l % 4) and + 1 of matrix i, low half first.
    halves = np.ascontiguousarray(registers.T).view(np.uint16).reshape(4, 8, 8)
    assert (stored[0, :2] == halves[:2]).all()
    assert (stored[0, 2:] == 0).all()
    assert (stored[1] == halves).all()
    assert (stored[2] == halves.transpose(0, 2, 1)).all()
    held = np.ascontiguousarray(memory).view(np.uint16).reshape(4, 8, 8)

    def fragments(of: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint32]:
        return np.ascontiguousarray(of).view(np.uint32).reshape(4, 32).T

    assert (loaded[0, :, :2] == fragments(held)[:, :2]).all()
    assert (loaded[1] == fragments(held)).all()
    assert (loaded[2] == fragments(held.transpose(0, 2, 1))).all()


def store_box(program: Program) -> None:
    tile = np.random.default_rng(4).standard_normal((64, 64)).astype(np.float32)
    box, rows = np.zeros(8192, np.uint8), np.full((64, 72), 7, np.uint16)
    program.leave(tile, box, rows, 50)
    bits = layouts.to_bf16(tile)
    assert (box == layouts.boxes(bits, 128)).all()
    assert (rows[:50, :64] == bits[:50]).all()
    assert (rows[50:] == 7).all()
    assert (rows[:, 64:] == 7).all()


CHECKS = {
    "packing": packing,
    "transcendental": transcendental,
    "reductions": reductions,
    "matrices": matrices,
    "store_box": store_box,
}
