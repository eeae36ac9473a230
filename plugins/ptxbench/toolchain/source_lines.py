"""Which line of a candidate's source a place in its device code comes from.

What is judged is built without line information. A second build of the same source has it; where the code of a kernel
is byte for byte the same in both, the second one's lines are true of the first.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ptxbench.records.base import Record, Sha256
from ptxbench.toolchain.discovery import Disassembler
from ptxbench.toolchain.elf import Elf, ElfError
from ptxbench.toolchain.fatbin import FatbinError
from ptxbench.toolchain.plan import CompilePlan
from ptxbench.toolchain.sass import CODE_PREFIX, cubin_images
from ptxbench.toolchain.steps import Steps
from ptxbench.toolchain.translation import SOURCE_NAME

LINES_NAME = "lines.json"

_SECTION = re.compile(r"^\.text\.(\S+):")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-fA-F]{4,})\*/\s")
_LINE = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at "[^"]*", line \d+)?\s*$')


class KernelLines(Record):
    """The lines of one kernel. ``starts[i]`` is the byte offset from which ``lines[i]`` holds, ascending.

    An entry of ``lines`` is a line of the candidate and the lines that it was inlined at, innermost first; empty where
    the code comes from a header alone.
    """

    code_sha256: Sha256
    starts: tuple[int, ...]
    lines: tuple[tuple[int, ...], ...]


class LineTable(Record):
    """The lines of every kernel of one device image, by mangled name."""

    kernels: dict[str, KernelLines]


class SourceLines(NamedTuple):
    """Lines that are known to be those of the judged object."""

    table: LineTable

    def at(self, kernel: str, offset: int) -> tuple[int, ...]:
        """Lines of the instruction at a byte offset of a kernel (mangled name), innermost first; empty if unknown."""
        found = self.table.kernels.get(kernel)
        if found is None:
            return ()
        place = bisect.bisect_right(found.starts, offset) - 1
        return found.lines[place] if place >= 0 else ()


def with_line_info(plan: CompilePlan) -> CompilePlan:
    """The plan with the flags that ``nvcc -lineinfo`` adds (``nvcc --dryrun``)."""
    return plan._replace(
        device_front=(plan.device_front[0], "-generate-line-info", *plan.device_front[1:]),
        assemble=(plan.assemble[0], "--generate-line-info", *plan.assemble[1:]),
    )


def write_line_table(steps: Steps, tool: Disassembler) -> Path | None:
    """Compile the device half in the folder of ``steps``, which holds the source, and write its table there.

    None where something fails: the judged build succeeded, so it is this one's peculiarity. Raises
    InfrastructureError for a tool that was killed from outside.
    """
    for name in ("device_preprocess", "device_front", "assemble"):
        if not steps.attempt(name).ok:
            return None
    cubin = steps.product("assemble")
    disassembly = steps.attempt("disassemble", (str(tool.path), "-gi", "-c", cubin.name), whole=True)
    if not disassembly.ok:
        return None
    table = read_line_table(disassembly.output, _code_digests(cubin.read_bytes()))
    path = steps.folder / LINES_NAME
    path.write_text(table.model_dump_json())
    return path


def read_line_table(disassembly: str, digests: dict[str, str]) -> LineTable:
    """The lines in the output of ``nvdisasm -gi`` for the kernels of ``digests``: mangled name -> SHA-256 of its code.

    Lines of other files than the candidate are left out of a chain.
    """
    kernels: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    current: list[tuple[int, tuple[int, ...]]] = []
    chain: list[int] = []
    fresh = False
    for text in disassembly.splitlines():
        if section := _SECTION.match(text):
            current, chain, fresh = kernels.setdefault(section[1], []), [], False
        elif line := _LINE.match(text):
            if not fresh:  # the chain of the instructions so far has ended
                chain, fresh = [], True
            if Path(line[1]).name == SOURCE_NAME:
                chain.append(int(line[2]))
        elif instruction := _INSTRUCTION.match(text):
            fresh = False
            if not current or current[-1][1] != tuple(chain):
                current.append((int(instruction[1], 16), tuple(chain)))
    return LineTable(
        kernels={
            name: KernelLines(
                code_sha256=digests[name],
                starts=tuple(start for start, _ in entries),
                lines=tuple(lines for _, lines in entries),
            )
            for name, entries in kernels.items()
            if name in digests
        }
    )


def lines_of(table_path: Path, shared_object: Path) -> SourceLines | None:
    """The kernels of a table whose code is that of the judged object; None where a file cannot be read."""
    try:
        table = LineTable.model_validate_json(table_path.read_bytes())
        judged = dict(_digests_of(shared_object.read_bytes()))
    except (OSError, ValidationError, ElfError, FatbinError):
        return None
    same = {name: lines for name, lines in table.kernels.items() if judged.get(name) == lines.code_sha256}
    return SourceLines(LineTable(kernels=same))


def _digests_of(shared_object: bytes) -> Iterator[tuple[str, str]]:
    for image in cubin_images(shared_object):
        yield from _code_digests(image).items()


def _code_digests(cubin: bytes) -> dict[str, str]:
    elf = Elf(cubin)
    return {
        section.name.removeprefix(CODE_PREFIX): hashlib.sha256(elf.content(section)).hexdigest()
        for section in elf.sections
        if section.name.startswith(CODE_PREFIX)
    }
