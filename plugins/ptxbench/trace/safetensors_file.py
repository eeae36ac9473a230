"""Reading safetensors files: which tensors one holds, and their bytes. Needs neither torch nor NumPy.

The format: a little-endian 64-bit length, a JSON header of that length, then the data. The header maps each tensor to
``dtype``, ``shape`` and ``data_offsets``, counted from the start of the data.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.trace.definition import DType

LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
DIGEST_BYTES = 1 << 20
"""Of a file's start and of its end, that its digest covers: a collection may hold terabytes."""
METADATA = "__metadata__"

CODES = {
    DType.FLOAT32: "F32",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.FLOAT8_E4M3FN: "F8_E4M3",
    DType.FLOAT8_E5M2: "F8_E5M2",
    DType.FLOAT4_E2M1: "F4",
    DType.INT64: "I64",
    DType.INT32: "I32",
    DType.INT16: "I16",
    DType.INT8: "I8",
    DType.BOOL: "BOOL",
}
"""How the format calls the schema's element types."""


class BlobError(ValueError):
    """A file that is not what the format says."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


class TensorEntry(NamedTuple):
    """One tensor of a file. ``begin`` and ``end`` are bytes from the file's start."""

    dtype: str
    """The format's code, for example ``BF16``."""
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name. Raises BlobError where it is none, OSError where it cannot be read."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        # Opening a pipe waits for somebody who writes into it.
        raise BlobError("a regular file", "a pipe, socket or device")
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = file.read(LENGTH.size)
        if len(length) < LENGTH.size:
            raise BlobError("a safetensors file", f"{size} bytes, too few for its header")
        (count,) = LENGTH.unpack(length)
        if count > min(MAX_HEADER_BYTES, size - LENGTH.size):
            raise BlobError("a safetensors file", f"a header of {count} bytes in a file of {size}")
        text = file.read(count)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise BlobError("a safetensors file", "a header that is not JSON") from None
    if not isinstance(header, dict):
        raise BlobError("a safetensors file", "a header that is not an object")
    start = LENGTH.size + count
    return {name: _entry(name, raw, start, size) for name, raw in header.items() if name != METADATA}


def _entry(name: str, raw: Any, start: int, size: int) -> TensorEntry:  # noqa: ANN401 - whatever the file holds
    try:
        dtype, shape, (begin, end) = raw["dtype"], tuple(raw["shape"]), raw["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise BlobError(f"dtype, shape and data_offsets of the tensor {name!r}", "a header without them") from None
    numbers = (*shape, begin, end)
    if not isinstance(dtype, str) or not all(type(number) is int and number >= 0 for number in numbers):
        raise BlobError(f"sizes and offsets of the tensor {name!r} that are non-negative integers", f"{raw}"[:120])
    if not begin <= end <= size - start:
        raise BlobError(f"data of the tensor {name!r} within the file", f"bytes {begin} to {end} of {size - start}")
    return TensorEntry(dtype, shape, start + begin, start + end)


def expect_size(name: str, entry: TensorEntry, dtype: DType) -> None:
    """Raises BlobError where the tensor's data is not as long as its shape says."""
    bits = math.prod(entry.shape) * dtype.bits
    if (entry.end - entry.begin) * 8 != bits:
        raise BlobError(f"{bits / 8:g} bytes of data for the tensor {name!r}", f"{entry.end - entry.begin}")


def read_data(path: Path, key: str) -> bytearray:
    """The bytes of one tensor. Raises BlobError where the file has no such tensor, OSError."""
    header = read_header(path)
    if key not in header:
        raise BlobError(f"the tensor {key!r}", f"the tensors {', '.join(header) or '(none)'}")
    entry = header[key]
    data = bytearray(entry.end - entry.begin)
    with path.open("rb") as file:
        file.seek(entry.begin)
        if file.readinto(data) != len(data):
            raise BlobError(f"{len(data)} bytes of the tensor {key!r}", "the end of the file")
    return data


def digest(path: Path) -> str:
    """SHA-256 of a file's size, start and end, which hold its header: tells a file from another that took its place.

    Not of all its data. Raises OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        found = hashlib.sha256(f"{size}\0".encode())
        found.update(file.read(DIGEST_BYTES))
        if size > DIGEST_BYTES:
            file.seek(max(DIGEST_BYTES, size - DIGEST_BYTES))
            found.update(file.read(DIGEST_BYTES))
    return found.hexdigest()
