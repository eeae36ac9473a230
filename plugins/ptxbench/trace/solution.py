"""Solution: one implementation of a definition, with its sources."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, model_validator

from ptxbench.trace.base import FileName, RelativePath, Text, TraceModel, broken
from ptxbench.trace.python_source import NotPythonError, parse_module


class SourceLanguage(StrEnum):
    """Languages of the schema; which of them can be built is the toolchain's business."""

    PYTHON = "python"
    TRITON = "triton"
    CPP = "cpp"
    CUDA = "cuda"
    TILELANG = "tilelang"
    CUTEDSL = "cutedsl"


class Binding(StrEnum):
    """How compiled code is called. None in a spec means ``tvm-ffi`` for CUDA and C++."""

    TVM_FFI = "tvm-ffi"
    TORCH = "torch"


class SourceFile(TraceModel):
    """One file of a solution. Python files must parse."""

    path: RelativePath
    content: Text

    @model_validator(mode="after")
    def _python_parses(self) -> Self:
        if self.path.endswith(".py"):
            try:
                parse_module(self.content)
            except NotPythonError as error:
                raise broken(("content",), "Python source", str(error)) from None
        return self


class BuildSpec(TraceModel):
    """How a solution is built and called."""

    language: SourceLanguage
    target_hardware: Annotated[tuple[Text, ...], Field(min_length=1)]
    entry_point: Text
    """``FILE::SYMBOL``."""
    dependencies: tuple[Text, ...] = ()
    destination_passing_style: bool = True
    """Outputs are the last arguments; False: they are returned."""
    binding: Binding | None = None

    @model_validator(mode="after")
    def _entry_point_has_two_parts(self) -> Self:
        parts = self.entry_point.split("::")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise broken(("entry_point",), "FILE::SYMBOL, for example kernel.cu::run", repr(self.entry_point))
        return self

    @property
    def entry_file(self) -> str:
        """Path of the source that defines the entry symbol."""
        return self.entry_point.split("::")[0]

    @property
    def entry_symbol(self) -> str:
        """Name of the exported function."""
        return self.entry_point.split("::")[1]


class Solution(TraceModel):
    """One implementation of the definition named ``definition``."""

    name: FileName
    definition: FileName
    author: Text
    spec: BuildSpec
    sources: Annotated[tuple[SourceFile, ...], Field(min_length=1)]
    description: str | None = None

    @model_validator(mode="after")
    def _sources_are_a_file_tree(self) -> Self:
        seen: set[PurePosixPath] = set()
        for index, source in enumerate(self.sources):
            path = PurePosixPath(source.path)
            if path in seen:
                raise broken(("sources", index, "path"), "each path once", f"{source.path!r} again")
            seen.add(path)
        if PurePosixPath(self.spec.entry_file) not in seen:
            expected = f"a file of sources ({', '.join(source.path for source in self.sources)})"
            raise broken(("spec", "entry_point"), expected, repr(self.spec.entry_file))
        return self

    @property
    def entry_source(self) -> SourceFile:
        """The source that defines the entry symbol."""
        entry = PurePosixPath(self.spec.entry_file)
        return next(source for source in self.sources if PurePosixPath(source.path) == entry)
