import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.toolchain.fatbin import MAGIC, Entry, FatbinError, cubins, entries

ELF = b"\x7fELF" + bytes(range(60))


def entry(payload: bytes, kind: int = 2) -> bytes:
    return struct.pack("<HHIQ", kind, 0x101, 64, len(payload)) + bytes(48) + payload


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return MAGIC + struct.pack("<HHQ", 1, 16, len(content)) + content


def test_images_come_out_byte_for_byte():
    section = container(entry(ELF), entry(b".version 9.0", kind=1)) + bytes(8) + container(entry(ELF + b"12345678"))
    assert cubins(section) == (ELF, ELF + b"12345678")
    assert entries(section) == (Entry(True, ELF), Entry(False, b".version 9.0"), Entry(True, ELF + b"12345678"))


def test_an_empty_section_has_no_images():
    assert cubins(b"") == ()
    assert cubins(bytes(16)) == ()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (MAGIC, "cut off"),
        (b"\x01" * 40, "no container"),
        (container(entry(ELF))[:-1], "no container"),
        (container(b"\x02"), "cut off"),
        (container(struct.pack("<HHIQ", 2, 1, 64, 1 << 60)), "past its container"),
        (container(struct.pack("<HHIQ", 2, 1, 0, 0)), "past its container"),
        (container(entry(b"\x28\xb5\x2f\xfd compressed")), "uncompressed"),
    ],
)
def test_what_is_malformed_is_refused(section: bytes, message: str):
    with pytest.raises(FatbinError, match=message):
        cubins(section)


@given(st.binary(max_size=200), st.integers(0, 200), st.binary(max_size=8))
def test_damage_is_a_fatbin_error_and_nothing_else(tail: bytes, position: int, patch: bytes):
    section = bytearray(container(entry(ELF)) + tail)
    section[position : position + len(patch)] = patch
    try:
        for image in cubins(bytes(section)):
            assert image.startswith(b"\x7fELF")
    except FatbinError:
        pass
