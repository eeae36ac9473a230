"""The reader against the format's own library, and against files that are none."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxbench.trace.definition import DType
from ptxbench.trace.safetensors_file import (
    CODES,
    DIGEST_BYTES,
    BlobError,
    TensorEntry,
    digest,
    expect_size,
    read_data,
    read_header,
)

np = pytest.importorskip("numpy")
save_file = pytest.importorskip("safetensors.numpy").save_file

ARRAYS = {
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "bool": "BOOL",
}
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.text(st.characters(codec="utf-8", exclude_characters='"\\'), min_size=1, max_size=8)


def raw(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    tensors=st.dictionaries(names, st.tuples(st.sampled_from(list(ARRAYS)), shapes), max_size=4), seed=st.integers(0, 9)
)
def test_reads_what_the_library_writes(
    tmp_path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    written = {name: random.integers(0, 2, shape).astype(dtype) for name, (dtype, shape) in tensors.items()}
    path = tmp_path / "x.safetensors"
    save_file(written, path, metadata={"format": "np"})
    header = read_header(path)
    assert set(header) == set(written)
    for name, array in written.items():
        entry = header[name]
        assert (entry.dtype, entry.shape) == (ARRAYS[str(array.dtype)], array.shape)
        expect_size(name, entry, DType(str(array.dtype)))
        assert bytes(read_data(path, name)) == array.tobytes()


def test_every_element_type_has_a_code() -> None:
    assert set(CODES) == set(DType)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes, too few"),
        (b"1234567", "7 bytes, too few"),
        (struct.pack("<Q", 10**12) + b"{}", "a header of 1000000000000 bytes in a file of 10"),
        (raw(b"nothing"), "a header that is not JSON"),
        (raw(b"[" * 100_000), "a header that is not JSON"),
        (raw([]), "a header that is not an object"),
        (raw({"w": {}}), "a header without them"),
        (raw({"w": 3}), "a header without them"),
        (raw({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}), "a header without them"),
        (raw({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"), "'shape': [-1]"),
        (raw({"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"1234"), "'shape': [True]"),
        (raw({"w": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}}, b"1234"), "'dtype': 3"),
        (raw({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"123"), "bytes 0 to 4 of 3"),
        (raw({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"1234"), "bytes 4 to 0 of 4"),
    ],
)
def test_what_is_no_safetensors_file(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(BlobError) as caught:
        read_header(path)
    assert found in caught.value.found


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    try:
        read_header(path)
    except BlobError:
        return


def test_data_of_the_wrong_length() -> None:
    with pytest.raises(BlobError, match="expected 8 bytes of data for the tensor 'w', found 4"):
        expect_size("w", TensorEntry("F32", (2,), 0, 4), DType.FLOAT32)


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros(1, np.int8), "b": np.zeros(1, np.int8)}, path)
    with pytest.raises(BlobError, match="expected the tensor 'c', found the tensors a, b"):
        read_data(path, "c")


def test_a_digest_tells_files_apart(tmp_path: Path) -> None:
    path = tmp_path / "x"
    base = bytes(DIGEST_BYTES * 3)
    seen: set[Any] = set()
    for content in (base, base[:-1], b"x" + base[1:], base[:-1] + b"x", b"", b"x"):
        path.write_bytes(content)
        seen.add(digest(path))
    assert len(seen) == 6
    path.write_bytes(base)
    assert digest(path) in seen
