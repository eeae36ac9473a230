"""A small reader of 64-bit little-endian ELF files: sections, symbols, needed libraries; every offset is checked."""

from __future__ import annotations

import struct
from typing import NamedTuple

EM_CUDA = 190
"""Machine number of a cubin."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")

_MOST_NAMES = 64 << 20
"""Names may share their ends, so that a small file can hold ones that fill the memory of whoever reads them."""
_SHT_NOBITS = 8
_DT_NULL = 0
_DT_NEEDED = 1
_SHN_UNDEF = 0
_SHF_EXECINSTR = 4
_DATA_TYPES = frozenset({1, 5, 6})
"""STT_OBJECT, STT_COMMON and STT_TLS: inline assembly can turn the first into the others."""
_SHN_XINDEX = 0xFFFF


class ElfError(ValueError):
    """The bytes are not an ELF file of the supported kind, or an offset in it points outside."""


class Section(NamedTuple):
    """One section header, its name resolved. ``offset`` and ``size`` are bytes in the file."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """One symbol of a symbol table. ``section`` is the index of the section that it lies in."""

    name: str
    defined: bool
    global_: bool
    is_data: bool = False
    section: int = _SHN_UNDEF


class Elf:
    """One ELF image. Raises ElfError on anything malformed, from the constructor and from every method."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
            raise ElfError("expected a 64-bit little-endian ELF file")
        self._data = data
        fields = _HEADER.unpack_from(data)
        self.machine: int = fields[2]
        self.sections = self._read_sections(fields[6], fields[11], fields[12], fields[13])

    def _read_sections(self, offset: int, entry_size: int, count: int, names_index: int) -> tuple[Section, ...]:
        if offset and entry_size != _SECTION.size:
            raise ElfError(f"expected section headers of {_SECTION.size} bytes, found {entry_size}")
        if offset and count == 0:  # too many for the header's field: the first section's size says how many
            count = _SECTION.unpack(self._slice(offset, _SECTION.size))[5]
        raw = list(_SECTION.iter_unpack(self._slice(offset, count * _SECTION.size)))
        if names_index == _SHN_XINDEX and raw:
            names_index = raw[0][6]
        if raw and names_index >= len(raw):
            raise ElfError(f"section name table {names_index} of {len(raw)} sections")
        names = self._slice(raw[names_index][4], raw[names_index][5]) if raw else b""
        found: list[Section] = []
        read = 0
        for r in raw:
            found.append(Section(_text(names, r[0]), r[1], r[2], r[4], r[5], r[6]))
            read += len(found[-1].name)
            if read > _MOST_NAMES:
                raise ElfError(f"section names of more than {_MOST_NAMES} characters together")
        return tuple(found)

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, section: Section) -> bytes:
        """The section's bytes; empty for one that takes no room in the file."""
        return b"" if section.kind == _SHT_NOBITS else self._slice(section.offset, section.size)

    def is_code(self, symbol: Symbol) -> bool:
        """Whether a symbol of ``.symtab`` lies in a section whose bytes can be executed."""
        return symbol.section < len(self.sections) and bool(self.sections[symbol.section].flags & _SHF_EXECINSTR)

    def symbols(self, table: str = ".symtab") -> tuple[Symbol, ...]:
        """Named symbols of ``.symtab`` or ``.dynsym``; empty when the file has no such table."""
        section = self.section(table)
        if section is None:
            return ()
        content, names = self.content(section), self._linked(section)
        if len(content) % _SYMBOL.size:
            raise ElfError(f"{table} has {len(content)} bytes, no multiple of {_SYMBOL.size}")
        found = (
            Symbol(_text(names, name), index != _SHN_UNDEF, info >> 4 != 0, info & 0xF in _DATA_TYPES, index)
            for name, info, _, index, _, _ in _SYMBOL.iter_unpack(content)
        )
        return tuple(symbol for symbol in found if symbol.name)

    def needed(self) -> tuple[str, ...]:
        """Names of the libraries that a shared object asks the loader for, in order."""
        section = self.section(".dynamic")
        if section is None:
            return ()
        content, names = self.content(section), self._linked(section)
        found: list[str] = []
        for tag, value in _DYNAMIC.iter_unpack(content[: len(content) // _DYNAMIC.size * _DYNAMIC.size]):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                found.append(_text(names, value))
        return tuple(found)

    def _linked(self, section: Section) -> bytes:
        if section.link >= len(self.sections):
            raise ElfError(f"{section.name} links to section {section.link} of {len(self.sections)}")
        return self.content(self.sections[section.link])

    def _slice(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._data):
            raise ElfError(f"{size} bytes at {offset} lie outside a file of {len(self._data)} bytes")
        return self._data[offset : offset + size]


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset > len(table) or end < 0:
        if offset == 0 and not table:
            return ""
        raise ElfError(f"name at {offset} lies outside a table of {len(table)} bytes")
    return table[offset:end].decode("utf-8", "replace")
