"""The container in which nvcc embeds device code (section ``.nv_fatbin``), read without a tool.

The layout is not documented by NVIDIA; it was read off objects of CUDA 12.8 to 13.0: a 16-byte header (magic,
version, header size, size of all entries), then entries of a header (kind, version, header size, padded payload
size) and a payload. Kind 2 is an ELF image, kind 1 is PTX. The toolchain builds with ``--no-compress``, so that a
payload is the very bytes that ptxas wrote.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

SECTION = ".nv_fatbin"
MAGIC = bytes.fromhex("50ed55ba")

_CONTAINER = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQ")
_KIND_ELF = 2
_ELF_MAGIC = b"\x7fELF"


class FatbinError(ValueError):
    """The bytes are not a sequence of uncompressed fat binaries."""


class Entry(NamedTuple):
    """What a container holds one of."""

    is_image: bool
    """An ELF image; anything else is text or in a form that is not known here."""
    payload: bytes


def cubins(section: bytes) -> tuple[bytes, ...]:
    """ELF images in a ``.nv_fatbin`` section, in order, byte for byte as ptxas wrote them. Raises as ``entries``."""
    return tuple(entry.payload for entry in entries(section) if entry.is_image)


def entries(section: bytes) -> tuple[Entry, ...]:
    """All that a ``.nv_fatbin`` section holds, in order.

    Raises FatbinError when the container is malformed or an image is compressed.
    """
    found: list[Entry] = []
    position = 0
    while position < len(section):
        if section[position] == 0:
            position += 1
            continue
        if len(section) - position < _CONTAINER.size:
            raise FatbinError(f"container header cut off at {position}")
        magic, _, header_size, size = _CONTAINER.unpack_from(section, position)
        start = position + header_size
        if magic != MAGIC or header_size < _CONTAINER.size or start + size > len(section):
            raise FatbinError(f"no container at {position}")
        found.extend(_entries(section[start : start + size]))
        position = start + size
    return tuple(found)


def _entries(content: bytes) -> list[Entry]:
    found: list[Entry] = []
    position = 0
    while position < len(content):
        if len(content) - position < _ENTRY.size:
            raise FatbinError(f"entry header cut off at {position}")
        kind, _, header_size, size = _ENTRY.unpack_from(content, position)
        start = position + header_size
        if header_size < _ENTRY.size or start + size > len(content):
            raise FatbinError(f"entry at {position} reaches past its container")
        payload = content[start : start + size]
        if kind == _KIND_ELF and not payload.startswith(_ELF_MAGIC):
            raise FatbinError("expected an uncompressed ELF image")
        found.append(Entry(kind == _KIND_ELF, payload))
        position = start + size
    return found
