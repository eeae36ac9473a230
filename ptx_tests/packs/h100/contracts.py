"""The code of the contracts, executed: the pipeline, products whose result feeds the next, and turns."""

from __future__ import annotations

import numpy as np
from ptx_tests.packs.h100 import layouts
from ptx_tests.packs.program import Program


def pipeline(program: Program) -> None:
    rng = np.random.default_rng(1)
    # More steps than stages, fewer, and as many.
    for m, n, k in ((256, 512, 640), (128, 256, 128), (128, 512, 256)):
        a, b = (rng.integers(-2, 3, (rows, k)).astype(np.float32) for rows in (m, n))
        out = np.zeros((m, n), np.uint16)
        program.gemm(layouts.to_bf16(a), layouts.to_bf16(b), out)
        assert (out == layouts.to_bf16(a @ b.T)).all(), (m, n, k)


def attention_tile(program: Program) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.integers(-1, 2, (rows, 128)).astype(np.float32) for rows in (64, 128, 128))
    out = np.zeros((64, 128), np.float32)
    program.attention_tile(*(layouts.to_bf16(x) for x in (q, k, v)), out)
    # Scores are integers up to 128, which BF16 holds exactly.
    assert (out == (q @ k.T) @ v + 1).all()


def turns(program: Program) -> None:
    order = np.zeros(40, np.uint32)
    program.turns(order)
    assert order.tolist() == [consumer * 1000 + i for i in range(20) for consumer in (0, 1)]


CHECKS = {"pipeline": pipeline, "attention_tile": attention_tile, "turns": turns}
