"""Architectures are data: ``knowledge_packs/<arch>/arch.yaml``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from ptxbench.cases.names import expect_known
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.records import Record
from ptxbench.trace.base import Text, broken

Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_*?]+$")]
"""An fnmatch pattern over SASS opcode bases, for example ``*GMMA``."""


def opcode_base(opcode: str) -> str:
    """The part of a SASS opcode before its modifiers: ``HGMMA`` of ``HGMMA.64x256x16.F32.BF16``."""
    return opcode.strip().split(".", 1)[0]


@lru_cache(maxsize=4096)
def _matches(base: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(base, pattern) for pattern in patterns)


class SassFamilies(Record):
    """Which SASS opcodes are the architecture's own (PROTOCOL 4.6). Patterns match the opcode base."""

    selected: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    not_selected: tuple[Pattern, ...] = ()
    """Reported when seen, never counted; wins over ``selected``."""
    noteworthy: dict[Text, tuple[Pattern, ...]] = Field(default_factory=dict)
    """Groups of selected opcodes that are counted, as the paper does, but reported apart."""
    matrix: tuple[Pattern, ...] = ()
    """The selected opcodes that multiply matrices."""

    def selects(self, opcode: str) -> bool:
        """Whether executing ``opcode`` (modifiers allowed) counts as using the architecture's own instructions."""
        base = opcode_base(opcode)
        return _matches(base, self.selected) and not _matches(base, self.not_selected)

    def reports(self, opcode: str) -> bool:
        """Whether ``opcode`` is of a family that is reported but not counted."""
        return _matches(opcode_base(opcode), self.not_selected)

    def is_matrix(self, opcode: str) -> bool:
        """Whether ``opcode`` is a selected matrix instruction."""
        return self.selects(opcode) and _matches(opcode_base(opcode), self.matrix)

    def note(self, opcode: str) -> str | None:
        """Name of the noteworthy group of ``opcode``, if any."""
        base = opcode_base(opcode)
        return next((name for name, patterns in self.noteworthy.items() if _matches(base, patterns)), None)


class Arch(SassFamilies):
    """One target architecture."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
    """Also its folder under ``knowledge_packs`` and its pytest mark."""
    title: Text
    sm: Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,3}[af]?$")]
    gencode: Text
    """Value of nvcc's ``-gencode``."""
    compute_capability: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    """Of the devices it covers, whatever their names."""
    bf16_flops_per_clock_per_sm: Annotated[int, Field(gt=0)]
    """Dense BF16 matrix FLOP (a multiply-add is two) per SM per clock: the ceiling of compute."""
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _gencode_is_of_sm(self) -> Self:
        number = self.sm.removeprefix("sm_")
        gencode = f"arch=compute_{number},code={self.sm}"
        if self.gencode != gencode:
            raise broken(("gencode",), f"{gencode!r}, as {self.sm} needs", repr(self.gencode))
        major, minor = self.compute_capability
        if number.rstrip("af") != f"{major}{minor}":
            raise broken(("compute_capability",), f"the compute capability of {self.sm}", f"{major}.{minor}")
        return self

    def covers(self, compute_capability: tuple[int, int]) -> bool:
        """Whether a device of this compute capability is one of this architecture."""
        return compute_capability == self.compute_capability


def available_archs(root: Path) -> tuple[str, ...]:
    """Names of the architectures that the checkout ``root`` describes, sorted."""
    return tuple(sorted(path.parent.name for path in (root / "knowledge_packs").glob("*/arch.yaml")))


def load_arch(root: Path, name: str) -> Arch:
    """Read ``knowledge_packs/<name>/arch.yaml``.

    Raises:
        InputError: no such architecture, or its file breaks the schema.
    """
    expect_known("arch", name, available_archs(root))
    document = read_yaml(root / "knowledge_packs" / name / "arch.yaml")
    arch = document.parse(Arch)
    if arch.name != name:
        raise document.error(("name",), f"{name!r}, the name of its folder", repr(arch.name))
    return arch
