"""Device code of a built object: its cubins, their hashes, and which opcodes each kernel holds.

Only facts of presence. Which opcodes matter on an architecture is decided where its patterns are known.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

from ptxbench.records.build import Cubin, KernelSass
from ptxbench.toolchain import fatbin
from ptxbench.toolchain.elf import Elf

CODE_PREFIX = ".text."

_FUNCTION = re.compile(r"^\s*(?:\.text\.(\S+):|\.section\s+\.text\.([^\s,]+))")
#         /*0a30*/              { @!UP0 UTMALDG.2D.MULTICAST [UR8], [UR4], UR6 ;
# An offset, perhaps the brace of a pair, perhaps a predicate, then the opcode. Lines of control codes hold no opcode.
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-fA-F]{4,}\*/\s*(?:\{\s*)?(?:@!?U?P(?:\d+|T)\s+)?([A-Z][A-Z0-9_]*)(?=[.\s;])")


def cubin_images(shared_object: bytes) -> tuple[bytes, ...]:
    """Non-empty device images of a shared object, exactly as ptxas wrote them. Raises ElfError or FatbinError."""
    elf = Elf(shared_object)
    section = elf.section(fatbin.SECTION)
    images = fatbin.cubins(elf.content(section)) if section else ()
    return tuple(image for image in images if function_names(image))


def function_names(cubin: bytes) -> tuple[str, ...]:
    """Mangled names of the functions with code of their own in a cubin. Raises ElfError."""
    sections = Elf(cubin).sections
    return tuple(s.name.removeprefix(CODE_PREFIX) for s in sections if s.name.startswith(CODE_PREFIX))


def parse_sass(disassembly: str) -> tuple[KernelSass, ...]:
    """Histogram of opcodes for each function in nvdisasm's output, in order of appearance.

    An opcode counts up to its first dot, whatever its predicate: ``@!PT`` lines,
    which never execute, count too, since presence is all that is claimed. Text of another shape is passed over.
    """
    functions: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    for line in disassembly.splitlines():
        header = _FUNCTION.match(line)
        if header:
            current = functions.setdefault(header[1] or header[2], Counter())
        elif current is not None and (instruction := _INSTRUCTION.match(line)):
            current[instruction[1]] += 1
    return tuple(KernelSass(kernel=name, opcodes=dict(sorted(count.items()))) for name, count in functions.items())


def describe_cubin(image: bytes, arch: str, disassembly: str | None) -> Cubin:
    """The record of one image; without a disassembly its functions are named and their opcodes left empty.

    Raises ElfError.
    """
    kernels = (
        tuple(KernelSass(kernel=name, opcodes={}) for name in function_names(image))
        if disassembly is None
        else parse_sass(disassembly)
    )
    return Cubin(sha256=hashlib.sha256(image).hexdigest(), size_bytes=len(image), arch=arch, kernels=kernels)
