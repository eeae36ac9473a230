"""Clusters: ranks, barriers, and the shared memory of other blocks."""

from __future__ import annotations

import numpy as np
from ptx_tests.packs.program import Program


def cluster_ids(program: Program) -> None:
    for size in (1, 2, 4, 8):
        out = np.zeros((16, 2), np.uint32)
        program.cluster_ids(out, size)
        assert out.tolist() == [[block % size, size] for block in range(16)]


def cluster_barriers(program: Program) -> None:
    for kind in (0, 1, 2):
        out = np.full((4, 64), 99, np.uint32)
        program.cluster_barriers(out, kind)
        assert (out == 0).all(), kind


def dsmem(program: Program) -> None:
    out = np.zeros((4, 64, 2), np.uint32)
    program.dsmem(out)
    rank, thread = np.arange(4)[:, None], np.arange(64)[None]
    assert (out[..., 0] == (rank + 3) % 4 * 1000 + thread).all()
    assert (out[..., 1] == rank * 1000 + thread).all()


def remote_arrivals(program: Program) -> None:
    out = np.full((2, 64), 99, np.uint32)
    program.remote_arrivals(out)
    assert (out == 0).all(), out


def dsmem_async(program: Program) -> None:
    out = np.zeros(128, np.uint32)
    program.dsmem_async(out)
    assert out.tolist() == [*range(9000, 9064), *range(5000, 5064)]


CHECKS = {
    "cluster_ids": cluster_ids,
    "cluster_barriers": cluster_barriers,
    "dsmem": dsmem,
    "remote_arrivals": remote_arrivals,
    "dsmem_async": dsmem_async,
}
