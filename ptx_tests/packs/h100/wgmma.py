"""Products of every width, major and source; operands in every layout. Small integers, so that sums are exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ptx_tests.packs.h100 import layouts
from ptx_tests.packs.program import Program

Floats = npt.NDArray[np.float32]


def _operands(n: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """A [64, 64], B [64, n] with K first, C [64, n]."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 64), (64, n), (64, n)))
    return a, b, c


def _tiles(matrix: Floats, rows_are_k: bool, span: int = 128) -> npt.NDArray[np.uint8]:
    """Shared memory of an operand [M or N, K]; MN-major: its transpose, rows of K."""
    return layouts.boxes(layouts.to_bf16(np.ascontiguousarray(matrix.T if rows_are_k else matrix)), span)


def _products(program: Program, registers: bool) -> None:
    """Every width, major and start value; all that are wrong are told."""
    wrong = []
    for n in range(8, 257, 8):
        for trans_a, trans_b in ((0, 0), (0, 1)) if registers else ((0, 0), (0, 1), (1, 0), (1, 1)):
            a, b, c = _operands(n, n)
            for accumulate in (0, 1):
                found = c.copy()
                left = a if registers else _tiles(a, bool(trans_a))
                program.product(left, _tiles(b.T, bool(trans_b)), found, registers, trans_a, trans_b, accumulate)
                if not (found == a @ b + accumulate * c).all():
                    wrong.append((n, trans_a, trans_b, accumulate))
    assert not wrong, wrong


def wgmma_ss(program: Program) -> None:
    _products(program, registers=False)


def wgmma_rs(program: Program) -> None:
    _products(program, registers=True)


def wgmma_layouts(program: Program) -> None:
    wrong = []
    for span in (128, 64, 32, 16):
        for trans_a, trans_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            a, b, _ = _operands(64, span)
            found = np.zeros((64, 64), np.float32)
            program.layout(
                _tiles(a, bool(trans_a), span), _tiles(b.T, bool(trans_b), span), found, span, trans_a, trans_b
            )
            if not (found == a @ b).all():
                wrong.append((span, trans_a, trans_b))
    assert not wrong, wrong


CHECKS = {"wgmma_ss": wgmma_ss, "wgmma_rs": wgmma_rs, "wgmma_layouts": wgmma_layouts}
