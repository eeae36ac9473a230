"""The address arithmetic of the backward schedules, on a model of shared memory, descriptors and tensor memory.

The model follows the PTX ISA's tables as the contracts give them; no device is involved. What is held
here is that tiles, descriptors and columns as the schedules name them fit together.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LOG2_SCALE = 0.1
"""Any factor of the scores will do."""
R0, R1, DV, DK = 0, 128, 256, 384
"""Columns of tensor memory in both schedules."""


class Shared:
    """Shared memory of one block as 16-bit elements, 128-byte swizzle throughout."""

    def __init__(self) -> None:
        self.elements: Array = np.full(232448 // 2, np.nan)

    @staticmethod
    def at(address: int) -> int:
        """Index of the element that a pattern over addresses puts at ``address``."""
        return (address ^ (address >> 3 & 0x70)) // 2

    def load(self, address: int, matrix: Array) -> None:
        """TMA: [rows, columns] as boxes of 64 columns, one after the other."""
        rows, columns = matrix.shape
        for row in range(rows):
            for column in range(columns):
                box, inner = divmod(column, 64)
                self.elements[self.at(address + box * rows * 128 + row * 128 + inner * 2)] = matrix[row, column]

    def write_row(self, address: int, row: int, values: Array) -> None:
        """A thread's 64 values as eight chunks of 16 bytes."""
        for chunk in range(8):
            start = self.at(address + 128 * row + 16 * chunk)
            self.elements[start : start + 8] = values[8 * chunk : 8 * chunk + 8]

    def k_major(self, start: int, size: int) -> Array:
        """[size, 16]: what smem_desc_k_major(start) describes; ``start`` holds the step."""
        offsets = [[m // 8 * 1024 + m % 8 * 128 + 2 * k for k in range(16)] for m in range(size)]
        return self._read(start, offsets)

    def mn_major(self, start: int, leading: int, size: int) -> Array:
        """[size, 16]: what smem_desc_mn_major(start, leading) describes."""
        offsets = [
            [m // 64 * leading + k // 8 * 1024 + k % 8 * 128 + m % 64 * 2 for k in range(16)] for m in range(size)
        ]
        return self._read(start, offsets)

    def _read(self, start: int, offsets: list[list[int]]) -> Array:
        return np.array([[self.elements[self.at(start + offset)] for offset in row] for row in offsets])


class Tensor:
    """Tensor memory of one block: FP32 cells, and cells that hold two BF16."""

    def __init__(self) -> None:
        self.cells: Array = np.full((128, 512), np.nan)
        self.pairs: Array = np.full((128, 512, 2), np.nan)

    def write_pairs(self, column: int, values: Array) -> None:
        """Each lane's values, packed two to a column."""
        self.pairs[:, column : column + values.shape[1] // 2] = values.reshape(128, -1, 2)

    def operand(self, column: int) -> Array:
        """[128, 16]: A in tensor memory, 8 columns."""
        return self.pairs[:, column : column + 8].reshape(128, 16)

    def add(self, column: int, product: Array, accumulate: bool, lane: int = 0) -> None:
        """D = product + (accumulate ? D : 0)."""
        rows, columns = product.shape
        d = self.cells[lane : lane + rows, column : column + columns]
        d[:] = product + d if accumulate else product


def inputs() -> tuple[Array, Array, Array, Array, Array, Array]:
    """Q and dO of 128 queries, K and V of 256 keys, L2 and delta."""
    values = np.random.default_rng(0)
    q, do = values.standard_normal((2, 128, 128))
    k, v = values.standard_normal((2, 256, 128))
    l2, delta = values.standard_normal((2, 128))
    return q, do, k, v, l2, delta


def step(k: int) -> int:
    """Bytes to step k of 16 inside boxes of 64 that are 16384 bytes apart."""
    return 16384 * (k // 4) + 32 * (k % 4)


def test_one_cta_schedule() -> None:
    q, do, keys, values, l2, delta = inputs()
    keys, values = keys[:128], values[:128]
    at = {"K": 0, "V": 32768, "Q": 65536, "dO": 98304, "dS": 131072}
    shared, tensor = Shared(), Tensor()
    for name, matrix in (("K", keys), ("V", values), ("Q", q), ("dO", do)):
        shared.load(at[name], matrix)

    def k_major(name: str, k: int) -> Array:
        return shared.k_major(at[name] + step(k), 128)

    def mn_major(name: str, k: int) -> Array:
        return shared.mn_major(at[name] + 2048 * k, 16384, 128)

    for k in range(8):
        tensor.add(R0, k_major("K", k) @ k_major("Q", k).T, k > 0)
        tensor.add(R1, k_major("V", k) @ k_major("dO", k).T, k > 0)
    p = np.exp2(tensor.cells[:, R0 : R0 + 128] * LOG2_SCALE - l2)
    ds = p * (tensor.cells[:, R1 : R1 + 128] - delta)
    for group in range(2):
        queries = slice(64 * group, 64 * group + 64)
        tensor.write_pairs(R0 + 64 * group, p[:, queries])
        for key in range(128):
            shared.write_row(at["dS"] + 16384 * group, key, ds[key, queries])
    for k in range(8):
        tensor.add(DV, tensor.operand(R0 + 64 * (k // 4) + 8 * (k % 4)) @ mn_major("dO", k).T, k > 0)
        tensor.add(DK, k_major("dS", k) @ mn_major("Q", k).T, k > 0)
        tensor.add(R1, mn_major("dS", k) @ mn_major("K", k).T, k > 0)
    np.testing.assert_allclose(tensor.cells[:, DV : DV + 128], p @ do)
    np.testing.assert_allclose(tensor.cells[:, DK : DK + 128], ds @ q)
    np.testing.assert_allclose(tensor.cells[:, R1 : R1 + 128], ds.T @ keys)


class Pair:
    """The blocks of a pair, laid out as the 2-CTA schedule says."""

    AT: ClassVar = {
        "K": 0,
        "V": 32768,
        "KQ": 65536,
        "QR": 98304,
        "dOR": 114688,
        "QC": 131072,
        "dOC": 147456,
        "DSQ": 163840,
    }
    SEND = 196608

    def __init__(self, q: Array, do: Array, keys: Array, values: Array) -> None:
        self.shared = (Shared(), Shared())
        self.tensor = (Tensor(), Tensor())
        for rank, shared in enumerate(self.shared):
            own, half = slice(128 * rank, 128 * rank + 128), slice(64 * rank, 64 * rank + 64)
            shared.load(self.AT["K"], keys[own])
            shared.load(self.AT["V"], values[own])
            shared.load(self.AT["KQ"], keys[:, half])
            for by_rows, by_columns, matrix in (("QR", "QC", q), ("dOR", "dOC", do)):
                shared.load(self.AT[by_rows], matrix[half])
                shared.load(self.AT[by_columns], matrix[:, half])

    def k_major(self, name: str, offset: int, size: int) -> list[Array]:
        """Both blocks' halves of an operand."""
        return [shared.k_major(self.AT[name] + offset, size) for shared in self.shared]

    def mn_major(self, name: str, k: int) -> list[Array]:
        """Both blocks' halves of an operand, 64 of M or N each."""
        return [shared.mn_major(self.AT[name] + 2048 * k, 32768, 64) for shared in self.shared]

    def in_tensor(self, column: int) -> list[Array]:
        """A in tensor memory, both blocks' rows."""
        return [tensor.operand(column) for tensor in self.tensor]

    def product(self, d: int, a: list[Array], b: list[Array], accumulate: bool) -> None:
        """One mma of the pair: M = 256 keeps a row in a lane; M = 128 puts the upper half of N into lanes 64 and up."""
        whole = np.vstack(b)
        for rows, tensor in zip(a, self.tensor, strict=True):
            if len(rows) == 128:
                tensor.add(d, rows @ whole.T, accumulate)
            else:
                for half, part in enumerate(np.split(rows @ whole.T, 2, axis=1)):
                    tensor.add(d, part, accumulate, lane=64 * half)

    def column(self, first: int) -> Array:
        """128 columns of both blocks' rows."""
        return np.vstack([tensor.cells[:, first : first + 128] for tensor in self.tensor])


def softmax_and_exchange(pair: Pair, l2: Array, delta: Array) -> None:
    """What the compute warps and the exchange thread of both blocks do."""
    for rank, (shared, tensor) in enumerate(zip(pair.shared, pair.tensor, strict=True)):
        scores, dp = tensor.cells[:, R0 : R0 + 128].copy(), tensor.cells[:, R1 : R1 + 128].copy()
        for group in range(2):
            queries = slice(64 * group, 64 * group + 64)
            p = np.exp2(scores[:, queries] * LOG2_SCALE - l2[queries])
            ds = p * (dp[:, queries] - delta[queries])
            tensor.write_pairs(R0 + 64 * group, p)
            tensor.write_pairs(R1 + 32 * group, ds)
            for key in range(128):
                target = Pair.AT["DSQ"] + 16384 * rank if group == rank else Pair.SEND
                shared.write_row(target, key, ds[key])
    for rank in range(2):
        start = (Pair.AT["DSQ"] + 16384 * rank) // 2
        sent = pair.shared[rank].elements[Pair.SEND // 2 : Pair.SEND // 2 + 8192]
        pair.shared[1 - rank].elements[start : start + 8192] = sent


def test_two_cta_schedule() -> None:
    q, do, keys, values, l2, delta = inputs()
    pair = Pair(q, do, keys, values)
    for k in range(8):
        rows = 8192 * (k // 4) + 32 * (k % 4)
        pair.product(R0, pair.k_major("K", step(k), 128), pair.k_major("QR", rows, 64), k > 0)
        pair.product(R1, pair.k_major("V", step(k), 128), pair.k_major("dOR", rows, 64), k > 0)
    np.testing.assert_allclose(pair.column(R0), keys @ q.T)
    p = np.exp2(keys @ q.T * LOG2_SCALE - l2)
    ds = p * (values @ do.T - delta)
    softmax_and_exchange(pair, l2, delta)
    for k in range(8):
        pair.product(DV, pair.in_tensor(R0 + 64 * (k // 4) + 8 * (k % 4)), pair.mn_major("dOC", k), k > 0)
        pair.product(DK, pair.in_tensor(R1 + 8 * k), pair.mn_major("QC", k), k > 0)
    for k in range(16):
        pair.product(R1 + 64, pair.mn_major("DSQ", k), pair.mn_major("KQ", k), k > 0)
    np.testing.assert_allclose(pair.column(DV), p @ do)
    np.testing.assert_allclose(pair.column(DK), ds @ q)
    found = np.empty((128, 128))
    for rank, tensor in enumerate(pair.tensor):
        for warp in range(4):
            row, column = 64 * rank + 32 * (warp % 2), 64 * (warp // 2)
            found[row : row + 32, column : column + 64] = tensor.cells[32 * warp : 32 * warp + 32, R1 + 64 : R1 + 128]
    np.testing.assert_allclose(found, ds.T @ keys)
