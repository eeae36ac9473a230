"""Tensor copies of every rank and swizzle, multicast, stores, reductions; bulk copies; the pack's own small kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ptx_tests.packs.h100 import layouts
from ptx_tests.packs.program import Program

Array = npt.NDArray[Any]

LOAD, MULTICAST, STORE = 0, 1, 2
OPERATIONS = ("load", "multicast", "store or reduction")
UINT8, UINT32, INT32, FLOAT16, FLOAT32, BFLOAT16 = 0, 2, 3, 6, 7, 9  # CUtensorMapDataType
BITS = {
    UINT8: np.uint8,
    UINT32: np.uint32,
    INT32: np.int32,
    FLOAT16: np.uint16,
    FLOAT32: np.uint32,
    BFLOAT16: np.uint16,
}


class Place(NamedTuple):
    """A box of a tensor; all innermost first.

    ``span``: bytes of the swizzle, 16 for none. ``pitch``: bytes from row to row of a matrix, 0 where it is packed.
    """

    type: int
    dims: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    span: int
    pitch: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(BITS[self.type]).itemsize


# Inside, over the far edges, and before the near ones. Every x is a multiple of 16 bytes: the device takes no other.
PLACES = (
    Place(BFLOAT16, (256,), (64,), (64,), 16),
    Place(BFLOAT16, (136,), (64,), (96,), 16),
    Place(BFLOAT16, (128, 80), (64, 64), (64, 32), 128),
    Place(BFLOAT16, (128, 80), (64, 64), (-8, -3), 128),
    Place(FLOAT16, (96, 40), (32, 24), (64, 20), 64),
    Place(FLOAT16, (96, 40), (16, 40), (16, -1), 32),
    Place(FLOAT32, (48, 20), (32, 16), (16, 8), 128),
    Place(FLOAT32, (48, 20), (12, 7), (4, 15), 16),
    Place(UINT8, (256, 30), (128, 16), (64, 20), 128),
    Place(UINT8, (256, 30), (32, 16), (-16, 3), 32),
    Place(BFLOAT16, (64, 9, 5), (32, 4, 3), (32, 6, 3), 64),
    Place(BFLOAT16, (64, 9, 5, 4), (64, 4, 2, 2), (0, 6, -1, 3), 128),
    Place(FLOAT32, (16, 5, 4, 3, 3), (8, 2, 3, 2, 2), (8, 4, 2, 1, -1), 32),
    Place(FLOAT16, (8, 3, 3, 3, 3), (8, 2, 2, 2, 2), (0, 1, 1, 1, 1), 16),
    Place(UINT8, (466, 30), (128, 16), (400, 8), 128, 512),
    Place(BFLOAT16, (230, 30), (64, 16), (208, 8), 128, 512),
    Place(FLOAT32, (101, 30), (32, 16), (80, 20), 128, 512),
)


def tensor(place: Place, seed: int = 3) -> Array:
    """Random bits, outermost dimension first; with what lies between the rows."""
    columns = place.pitch // place.itemsize or place.dims[0]
    shape = (*place.dims[:0:-1], columns)
    return np.random.default_rng(seed).integers(0, 250, shape).astype(BITS[place.type])


def targets(place: Place, sizes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Index in the box and index in a tensor of these sizes, innermost first, of each element that lies in both."""
    for index in np.ndindex(place.box[::-1]):
        target = tuple(i + start for i, start in zip(index, place.at[::-1], strict=True))
        if all(0 <= i < size for i, size in zip(target, sizes[::-1], strict=True)):
            yield index, target


def gather(place: Place, values: Array) -> Array:
    """The box, zeros where it lies outside."""
    out = np.zeros(place.box[::-1], values.dtype)
    for index, source in targets(place, place.dims):
        out[index] = values[source]
    return out


def in_shared(place: Place, box: Array) -> npt.NDArray[np.uint8]:
    """Bytes of the box as TMA lays them out."""
    rows = np.ascontiguousarray(box.reshape(-1, place.box[0])).view(np.uint8)
    return rows.reshape(-1) if place.span == 16 else layouts.swizzle_box(rows, place.span)


def copy(
    program: Program, operation: int, place: Place, values: Array, shared: Array, kind: int, mask: int = 0
) -> None:
    """One copy. Raises RuntimeError that says which, where the device refuses it."""
    sizes = [np.array(numbers, np.int64) for numbers in (place.dims, place.box, place.at)]
    try:
        program.tensor_copy(operation, values, place.type, *sizes, place.span, place.pitch, shared, kind, mask)
    except Exception as error:
        raise RuntimeError(f"{OPERATIONS[operation]}, kind {kind}, {place}: {error}") from error


def _loads(program: Program, kind: int) -> None:
    for place in PLACES:
        values = tensor(place)
        expected = in_shared(place, gather(place, values))
        found = np.full(expected.size, 0x55, np.uint8)
        copy(program, LOAD, place, values, found, kind)
        assert (found == expected).all(), (kind, place, np.flatnonzero(found != expected)[:8])


def tma_load(program: Program) -> None:
    _loads(program, 0)


def tma_prefetch(program: Program) -> None:
    _loads(program, 3)


def tma_hints(program: Program) -> None:
    _loads(program, 1)
    _loads(program, 2)
    _stores(program, 1)
    _stores(program, 2)


def tma_multicast(program: Program) -> None:
    for place in PLACES:
        values = tensor(place)
        expected = in_shared(place, gather(place, values))
        for kind, mask in ((0, 0b1011), (1, 0b1110), (0, 0b0001)):
            found = np.full((4, expected.size), 0x55, np.uint8)
            copy(program, MULTICAST, place, values, found, kind, mask)
            for rank in range(4):
                wanted = expected if mask >> rank & 1 else np.full_like(expected, 0xEE)
                assert (found[rank] == wanted).all(), (place, kind, mask, rank)
    source = np.arange(1024, dtype=np.uint32)
    found = np.zeros((4, 1024), np.uint32)
    program.bulk_multicast(source, found, 0b0101)
    assert (found[[0, 2]] == source).all()
    assert (found[[1, 3]] == 0xEEEEEEEE).all()


def _combine(
    program: Program, place: Place, kind: int, old: Array, new: Array, how: Callable[[Array, Array], Any]
) -> None:
    """One store or reduction of the box ``new`` into ``old``, compared in the tensor's bits."""
    values = old.copy()
    copy(program, STORE, place, values, in_shared(place, new).copy(), kind)
    expected = old.copy()
    # The device writes whole chunks of 16 bytes, also past the end of a row.
    chunk = 16 // place.itemsize
    for index, target in targets(place, (-(-place.dims[0] // chunk) * chunk, *place.dims[1:])):
        expected[target] = how(old[target], new[index])
    assert (values == expected).all(), (kind, place, np.argwhere(values != expected)[:4])


def _stores(program: Program, kind: int) -> None:
    for anywhere in PLACES:
        # A store at a negative coordinate is an illegal instruction.
        place = anywhere._replace(at=tuple(max(0, start) for start in anywhere.at))
        new = np.random.default_rng(4).integers(0, 250, place.box[::-1]).astype(BITS[place.type])
        _combine(program, place, kind, tensor(place), new, lambda _, value: value)


def tma_store(program: Program) -> None:
    _stores(program, 0)


def _increment(old: Array, limit: Array) -> int:
    return 0 if old >= limit else int(old) + 1


def _decrement(old: Array, limit: Array) -> int:
    return int(limit) if old == 0 or old > limit else int(old) - 1


def tma_reduce(program: Program) -> None:
    ranks = ((32,), (32, 8), (32, 4, 2), (32, 3, 2, 2), (32, 2, 2, 2, 2))
    rng = np.random.default_rng(5)

    def box(type_: int, dims: tuple[int, ...], low: int, high: int) -> tuple[Place, Array, Array]:
        place = Place(type_, dims, (16, *dims[1:]), (8, *(0 for _ in dims[1:])), 16)
        old, new = (rng.integers(low, high, shape[::-1]) for shape in (place.dims, place.box))
        return place, old, new

    integers: dict[int, tuple[Callable[[Array, Array], Any], int]] = {
        10: (np.add, INT32),
        11: (np.minimum, INT32),
        12: (np.maximum, INT32),
        13: (_increment, UINT32),
        14: (_decrement, UINT32),
        15: (np.bitwise_and, UINT32),
        16: (np.bitwise_or, UINT32),
        17: (np.bitwise_xor, UINT32),
    }
    for dims in ranks:
        for kind, (operation, type_) in integers.items():
            place, old, new = box(type_, dims, -50 if type_ == INT32 else 0, 50)
            dtype = BITS[type_]
            _combine(program, place, kind, old.astype(dtype), new.astype(dtype), operation)
        floats: tuple[tuple[int, Callable[[Array], Array], Callable[[Array], Array], tuple[int, ...]], ...] = (
            (FLOAT32, _f32_bits, _f32_values, (10,)),
            (BFLOAT16, layouts.to_bf16, layouts.from_bf16, (10, 11, 12)),
            (FLOAT16, _f16_bits, _f16_values, (10, 11, 12)),
        )
        for type_, to_bits, to_values, kinds in floats:
            for kind in kinds:
                place, old, new = box(type_, dims, -50, 50)
                how = partial(_on_values, integers[kind][0], to_bits, to_values)
                _combine(program, place, kind, to_bits(old.astype(np.float32)), to_bits(new.astype(np.float32)), how)


def _on_values(
    how: Callable[[Array, Array], Any],
    to_bits: Callable[[Array], Array],
    to_values: Callable[[Array], Array],
    old: Array,
    new: Array,
) -> Any:  # noqa: ANN401  a scalar of numpy
    """An operation on two elements given as bits."""
    return to_bits(how(to_values(np.atleast_1d(old)), to_values(np.atleast_1d(new))))[0]


def _f32_bits(values: Array) -> Array:
    return values.astype(np.float32).view(np.uint32)


def _f32_values(bits: Array) -> Array:
    return bits.astype(np.uint32).view(np.float32)


def _f16_bits(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16)


def _f16_values(bits: Array) -> Array:
    return bits.astype(np.uint16).view(np.float16)


def bulk(program: Program) -> None:
    source = np.random.default_rng(6).integers(-99, 99, 4096).astype(np.float32)
    out, sums = np.zeros_like(source), np.arange(4096, dtype=np.float32)
    expected = sums + source
    program.bulk(source, out, sums)
    assert (out == source).all()
    assert (sums == expected).all()


def tile_kernel(program: Program) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (192, 64)).astype(np.float32) for _ in range(2))
    out = np.zeros((192, 64), np.uint16)
    program.tile(layouts.to_bf16(a), layouts.to_bf16(b), out)
    expected = np.concatenate([a[y : y + 64] @ b[y : y + 64].T for y in (0, 64, 128)])
    assert (layouts.from_bf16(out) == layouts.from_bf16(layouts.to_bf16(expected))).all()


CHECKS = {
    "tma_load": tma_load,
    "tma_prefetch": tma_prefetch,
    "tma_hints": tma_hints,
    "tma_multicast": tma_multicast,
    "tma_store": tma_store,
    "tma_reduce": tma_reduce,
    "bulk": bulk,
    "tile_kernel": tile_kernel,
}
