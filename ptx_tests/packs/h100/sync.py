"""Barriers, fences, roles inside a block, and flags between blocks: states and values that must come out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ptx_tests.packs.program import Program

FRESH, EVEN_DONE, ODD_DONE = 1, 2, 1
"""2 * (parity 0 completed) + (parity 1 completed): a fresh barrier counts parity 1 as completed."""


def _zeros(*shape: int) -> npt.NDArray[np.uint32]:
    return np.zeros(shape, np.uint32)


def mbarrier_counts(program: Program) -> None:
    out = _zeros(6)
    program.mbarrier_counts(out)
    assert out.tolist() == [FRESH, FRESH, FRESH, EVEN_DONE, EVEN_DONE, ODD_DONE]


def mbarrier_parity(program: Program) -> None:
    out = _zeros(12)
    program.mbarrier_parity(out)
    assert out.reshape(6, 2).tolist() == [[ODD_DONE, ODD_DONE], [EVEN_DONE, EVEN_DONE]] * 3


def mbarrier_tx(program: Program) -> None:
    source, out, data = np.arange(64, dtype=np.uint32) * 7 + 1, _zeros(6), _zeros(64)
    program.mbarrier_tx(source, out, data)
    assert out.tolist() == [1] * 6
    assert data.tolist() == source.tolist()


def mbarrier_inval(program: Program) -> None:
    out = _zeros(3)
    program.mbarrier_inval(out)
    assert out.tolist() == [1, 1, 1]


def mbarrier_ring(program: Program) -> None:
    items = np.random.default_rng(1).integers(0, 1 << 20, 500).astype(np.uint32)
    out = _zeros(128)
    program.mbarrier_ring(items, out)
    expected = _zeros(128)
    for i, item in enumerate(items):
        expected = expected * np.uint32(31) + (item + (np.arange(128, dtype=np.uint32) + np.uint32(i)) % np.uint32(128))
    assert (out == expected).all()


def named_barriers(program: Program) -> None:
    out = _zeros(64, 128)
    program.named_barriers(out)
    expected = np.arange(64)[:, None] * 1000 + (np.arange(128)[None] + 37) % 128
    assert (out == expected).all()


def elect(program: Program) -> None:
    out = _zeros(8, 4)
    program.elect(out)
    assert all(int(mask).bit_count() == 1 for mask in out.flat), out
    assert (out == out[:, :1]).all(), "another lane was elected the next time"


def setmaxnreg(program: Program) -> None:
    # Halves of small integers: every step is exact, fused or not.
    values = np.random.default_rng(2).integers(-100, 101, (200, 256)).astype(np.float32)
    out, expected, rounds = np.zeros_like(values), values.copy(), 7
    program.setmaxnreg(values, out, rounds)
    for _ in range(rounds):
        for i in range(200):
            expected[i] = expected[i] * np.float32(0.5) + expected[(i + 77) % 200]
    assert (out == expected).all()


def fence_async_global(program: Program) -> None:
    for kind in (0, 1):
        out = np.full(256, 99, np.uint32)
        program.proxy_global(out, kind)
        assert out.tolist() == [0] * 256, kind


def _messages(program: Program, kind: int) -> None:
    out = np.full(1, 99, np.uint32)
    program.messages(out, _zeros(512), _zeros(64), kind)
    assert out.tolist() == [0]


def fence_cluster(program: Program) -> None:
    _messages(program, 0)


def flags(program: Program) -> None:
    _messages(program, 1)
    _messages(program, 2)
    out = _zeros(64)
    program.sums(out, _zeros(100, 64), _zeros(1))
    assert (out == np.arange(6400).reshape(100, 64).sum(0)).all()


CHECKS = {
    "mbarrier_counts": mbarrier_counts,
    "mbarrier_parity": mbarrier_parity,
    "mbarrier_tx": mbarrier_tx,
    "mbarrier_inval": mbarrier_inval,
    "mbarrier_ring": mbarrier_ring,
    "named_barriers": named_barriers,
    "elect": elect,
    "setmaxnreg": setmaxnreg,
    "fence_async_global": fence_async_global,
    "fence_cluster": fence_cluster,
    "flags": flags,
}
