"""The container in which nvcc embeds device code (section ``.nv_fatbin``), read without a tool.

The layout is not documented by NVIDIA; it was read off objects of CUDA 12.8 to 13.0: a 16-byte header (magic,
version, header size, size of all entries), then entries of a header (kind, version, header size, padded payload
size) and a payload. Kind 2 is an ELF image, kind 1 is PTX. The toolchain builds with ``--no-compress``, so that a
payload is the very bytes that ptxas wrote.
"""

from __future__ import annotations

import struct

SECTION = ".nv_fatbin"
MAGIC = bytes.fromhex("50ed55ba")

_CONTAINER = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQ")
_KIND_ELF = 2
_ELF_MAGIC = b"\x7fELF"


class FatbinError(ValueError):
    """The bytes are not a sequence of uncompressed fat binaries."""


def cubins(section: bytes) -> tuple[bytes, ...]:
    """ELF images in a ``.nv_fatbin`` section, in order, byte for byte as ptxas wrote them.

    Raises FatbinError when the container is malformed or a payload is compressed.
    """
    images: list[bytes] = []
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
        images.extend(_entries(section[start : start + size]))
        position = start + size
    return tuple(images)


def _entries(content: bytes) -> list[bytes]:
    images: list[bytes] = []
    position = 0
    while position < len(content):
        if len(content) - position < _ENTRY.size:
            raise FatbinError(f"entry header cut off at {position}")
        kind, _, header_size, size = _ENTRY.unpack_from(content, position)
        start = position + header_size
        if header_size < _ENTRY.size or start + size > len(content):
            raise FatbinError(f"entry at {position} reaches past its container")
        if kind == _KIND_ELF:
            image = content[start : start + size]
            if not image.startswith(_ELF_MAGIC):
                raise FatbinError("expected an uncompressed ELF image")
            images.append(image)
        position = start + size
    return images
