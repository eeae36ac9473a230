"""Functions that only compute, against models written from the PTX ISA's descriptions. They run on the host."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_tests.packs.h100 import layouts
from ptx_tests.packs.program import Program


def swizzle(program: Program) -> None:
    for span in (16, 32, 64, 128):
        for row in range(64):
            for byte in range(0, span, 4):
                expected = layouts.swizzled(span, row, byte)
                assert program.host_swizzle(span, row * span + byte) == expected, (span, row, byte)


def descriptors(program: Program) -> None:
    def found(span: int, kind: int, addr: int, lbo: int = 0, sbo: int = 0) -> int:
        out = np.zeros(1, np.uint64)
        program.host_descriptor(span, kind, addr, lbo, sbo, out)
        return int(out[0])

    for span in (16, 32, 64, 128):
        for addr in (1024, 0x1FC00, 0x38000, 0x38020):
            assert found(span, 0, addr, 2048, 512) == layouts.descriptor(span, addr, 2048, 512)
            assert found(span, 1, addr) == layouts.descriptor(span, addr, 16, 8 * span)
            assert found(span, 2, addr, 8192) == layouts.descriptor(span, addr, 8192, 8 * span)


def accumulators(program: Program) -> None:
    places = np.zeros((64, 256), int)
    for thread in range(128):
        for i in range(128):
            row, column = program.host_acc_row(thread, i), program.host_acc_column(thread, i)
            assert (row, column) == layouts.accumulator(thread, i)
            places[row, column] += 1
    assert (places == 1).all(), "the accumulators of 128 threads do not tile 64 x 256"


def ring(program: Program) -> None:
    out = np.zeros(14, np.int32)
    program.host_ring(out)
    assert out.tolist() == [2 * (i % 3) + i // 3 % 2 for i in range(14)]


def alignment(program: Program) -> None:
    for x in (0, 1, 16, 1023, 1024, 1025, 232448):
        assert program.host_align_up(x, 1024) == -(-x // 1024) * 1024


def sizes(program: Program) -> None:
    # CUtensorMapDataType: UINT8, FLOAT16, BFLOAT16, FLOAT32, INT32, UINT32.
    assert [program.host_element_bytes(kind) for kind in (0, 6, 9, 7, 3, 2)] == [1, 2, 2, 4, 4, 4]
    with pytest.raises(Exception, match="no size for tensor map type 8"):
        program.host_element_bytes(8)


def host_errors(program: Program) -> None:
    program.host_check(0)
    with pytest.raises(RuntimeError, match="the call: invalid argument"):
        program.host_check(1)


def host_stream(program: Program) -> None:
    assert program.host_stream(np.zeros(1, np.float32))


CHECKS = {
    "swizzle": swizzle,
    "descriptors": descriptors,
    "accumulators": accumulators,
    "ring": ring,
    "alignment": alignment,
    "sizes": sizes,
    "host_errors": host_errors,
    "host_stream": host_stream,
}
