"""What cuda-gdb prints about a running kernel (CUDA-GDB manual, "Info CUDA Commands"; GDB manual, "Memory", "Symbols").

The names in it are a candidate's text: bounded here, and never more than text. Whatever cannot be read is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ptxbench.records import WaitingPlace

MAX_NAME_CHARS = 4_000
"""A longer name is no kernel's of the object."""
MAX_INSTRUCTION_CHARS = 120

Index = tuple[int, int, int]

_INDEX = r"\((\d{1,10}),(\d{1,10}),(\d{1,10})\)\s*"
_ROW = re.compile(_INDEX * 4 + r"(\d{1,10})\s+0x([0-9a-f]{1,16})\b")
_KERNEL = re.compile(r"^\*.{0,120}?\s0x[0-9a-f]{1,80}\s+" + _INDEX * 2, re.MULTILINE)
"""The row of the current kernel: mask of SMs, grid, block."""
_ASKED = re.compile(r"@0x([0-9a-f]{1,16})$")
_INSTRUCTION = re.compile(r"0x([0-9a-f]{1,16}) <([^<>\s]+?)(?:\+(\d{1,9}))?>:\s*(.*)$")
_SECTION = re.compile(r"(?:^|\s)(\S+?)(?: \+ (\d{1,9}))? in section \.text\.(\S+)")
_LOCAL = re.compile(r"\$(?P<kernel>(?!__internal_)[^$]+)\$")
"""``$KERNEL$FUNCTION``: the assembler's symbol of a function that it keeps in the kernel's own section."""


class Span(NamedTuple):
    """A row of ``info cuda threads``: consecutive threads at one address."""

    first_block: Index
    first_thread: Index
    last_block: Index
    threads: int
    address: int


class Symbol(NamedTuple):
    """What stands at an address. ``offset`` counts from the start of ``name``, a kernel or a function of one."""

    name: str
    offset: int
    kernel: str
    instruction: str


def spans(text: str) -> tuple[Span, ...]:
    """The rows of ``info cuda threads``."""
    return tuple(_span(match) for match in _ROW.finditer(text))


def _span(match: re.Match[str]) -> Span:
    numbers = [int(group) for group in match.groups()[:13]]
    return Span(
        first_block=(numbers[0], numbers[1], numbers[2]),
        first_thread=(numbers[3], numbers[4], numbers[5]),
        last_block=(numbers[6], numbers[7], numbers[8]),
        threads=numbers[12],
        address=int(match[14], 16),
    )


def block_shape(text: str) -> Index | None:
    """Threads of a block of the current kernel, by ``info cuda kernels``; None where there is no such kernel."""
    match = _KERNEL.search(text)
    return (int(match[4]), int(match[5]), int(match[6])) if match else None


def busiest(rows: Iterable[Span], most: int) -> tuple[int, ...]:
    """The addresses with the most threads, those first."""
    threads: dict[int, int] = {}
    for row in rows:
        threads[row.address] = threads.get(row.address, 0) + row.threads
    return tuple(sorted(threads, key=lambda address: (-threads[address], address))[:most])


def questions(address: int) -> tuple[str, str, str]:
    """Commands whose output ``symbols`` reads: a mark, the instruction, the section that it lies in."""
    return rf"echo \n@{address:#x}\n", f"x/i {address:#x}", f"info symbol {address:#x}"


def symbols(text: str) -> dict[int, Symbol]:
    """By address, what the answers to ``questions`` tell of it."""
    found: dict[int, Symbol] = {}
    address: int | None = None
    for line in text.splitlines():
        if asked := _ASKED.match(line):
            address = int(asked[1], 16)
        elif address is None:
            continue
        elif (shown := _INSTRUCTION.search(line)) and int(shown[1], 16) == address:
            found[address] = _shown(shown)
        elif section := _SECTION.search(line):
            at = found.get(address) or Symbol(section[1], int(section[2] or 0), section[3], "")
            found[address] = at._replace(kernel=section[3])
    return {at: symbol for at, symbol in found.items() if len(symbol.kernel) <= MAX_NAME_CHARS}


def _shown(match: re.Match[str]) -> Symbol:
    name, instruction = match[2], " ".join(match[4].split())
    local = _LOCAL.match(name)
    return Symbol(name, int(match[3] or 0), local["kernel"] if local else name, instruction[:MAX_INSTRUCTION_CHARS])


def places(rows: Sequence[Span], known: Mapping[int, Symbol], shape: Index | None) -> tuple[WaitingPlace, ...]:
    """The places of the known addresses, in their order. ``shape`` is that of a block."""
    starts = {symbol.kernel: at - symbol.offset for at, symbol in known.items() if symbol.name == symbol.kernel}
    found = []
    for address, symbol in known.items():
        here = [row for row in rows if row.address == address]
        start = starts.get(symbol.kernel)
        if not here or (start is not None and start > address):
            continue
        found.append(
            WaitingPlace(
                kernel=symbol.kernel,
                offset=address - start if start is not None else None,
                threads=sum(row.threads for row in here),
                blocks=_blocks(here, shape),
                block=here[0].first_block,
                thread=here[0].first_thread,
                instruction=symbol.instruction,
            )
        )
    return tuple(found)


def _blocks(rows: Sequence[Span], shape: Index | None) -> int:
    """Blocks that rows of one address touch. A block can have several rows; a row can run over several blocks."""
    ends, between = set(), 0
    for row in rows:
        ends |= {row.first_block, row.last_block}
        if shape is not None and row.first_block != row.last_block:
            x, y, z = row.first_thread
            size = max(1, shape[0] * shape[1] * shape[2])
            reach = x + shape[0] * (y + shape[1] * z) + row.threads
            between += max(0, -(-reach // size) - 2)
    return len(ends) + between
