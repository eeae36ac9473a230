"""A candidate: the source text that is judged, named by its content."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from ptxbench.records.base import Record


class Language(StrEnum):
    """Source languages that the toolchain can build."""

    CUDA = "cuda"


class Candidate(Record):
    """One kernel source as it is compiled. ``entry`` is ``FILE::SYMBOL`` as in FlashInfer-Trace."""

    source: str
    entry: str = "kernel.cu::run"
    language: Language = Language.CUDA

    @property
    def sha256(self) -> str:
        """Identity of the candidate: language, entry and source; never its name."""
        text = "\0".join((self.language.value, self.entry, self.source))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
