"""Functions that only compute, against models written from the PTX ISA's tables. They run on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Program(Protocol):
    """Exports of host.cu."""

    def host_swizzle(self, offset: int) -> int: ...
    def host_descriptor(
        self, kind: int, addr: int, leading: int, stride: int, mode: int, base: int, out: npt.NDArray[np.uint64]
    ) -> None: ...
    def host_instruction(self, a: int, b: int, m: int, n: int, flags: int) -> int: ...
    def host_instruction_bf16(self, m: int, n: int, flags: int) -> int: ...
    def host_instruction_mxf4(self, m: int, n: int, a_id: int, b_id: int) -> int: ...


def fields(values: Mapping[int, int]) -> int:
    """A word from its fields: lowest bit -> value."""
    return sum(value << bit for bit, value in values.items())


def swizzle(program: Program) -> None:
    for row in range(64):
        for byte in range(0, 128, 4):
            chunk, rest = divmod(byte, 16)
            assert program.host_swizzle(128 * row + byte) == 128 * row + 16 * (chunk ^ (row % 8)) + rest, (row, byte)


def descriptors(program: Program) -> None:
    """PTX ISA, "Shared memory descriptor": address, leading, stride, 0b001, base offset, swizzle."""

    def found(kind: int, addr: int, leading: int = 0, stride: int = 0, mode: int = 0, base: int = 0) -> int:
        out = np.zeros(1, np.uint64)
        program.host_descriptor(kind, addr, leading, stride, mode, base, out)
        return int(out[0])

    for addr in (1024, 0x1FC00, 0x38000, 0x38020):
        # The block's rank in its cluster stands above bit 24 of an address and is no part of the descriptor.
        for rank in (0, 1):
            at, low = addr + (rank << 24), {0: addr // 16, 46: 1}
            for mode in (0, 1, 2, 4, 6):
                for base in (0, 5):
                    model = fields({**low, 16: 2048 // 16, 32: 512 // 16, 49: base, 61: mode})
                    assert found(0, at, 2048, 512, mode, base) == model
            assert found(1, at) == fields({**low, 16: 1, 32: 1024 // 16, 61: 2})
            assert found(2, at, 16384) == fields({**low, 16: 16384 // 16, 32: 1024 // 16, 61: 2})


def instructions(program: Program) -> None:
    """PTX ISA, "Instruction descriptor": the tables of kinds f16, tf32, f8f6f4 and of kind mxf4."""
    for m in (64, 128, 256):
        for n in (16, 128, 256):
            for flags in range(16):
                a_major, b_major, a_negate, b_negate = (flags >> bit & 1 for bit in range(4))
                shape = {4: 1, 15: a_major, 16: b_major, 17: n // 8, 24: m // 16}
                for a, b in ((1, 1), (2, 2), (0, 5)):
                    model = fields({**shape, 7: a, 10: b, 13: a_negate, 14: b_negate})
                    assert program.host_instruction(a, b, m, n, flags) == model
                if flags < 4:
                    assert program.host_instruction_bf16(m, n, flags) == fields({**shape, 7: 1, 10: 1})
            if m > 64:
                for a_id, b_id in ((0, 0), (2, 0), (0, 2)):
                    model = fields({4: b_id, 7: 1, 10: 1, 17: n // 8, 23: 1, 27: m // 128, 29: a_id})
                    assert program.host_instruction_mxf4(m, n, a_id, b_id) == model


CHECKS = {"swizzle": swizzle, "descriptors": descriptors, "instructions": instructions}
