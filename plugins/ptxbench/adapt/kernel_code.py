"""A kernel as code: what is left of its text without comments and layout. Pure."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from ptxbench.agent.cuda_text import advance

_KEPT = 4096
"""Kernels of a corpus are asked for again with every turn, and each takes milliseconds."""
_TOKEN = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)\w+)*|\d\w*|[^\s\w]")


def without_comments(source: str) -> str:
    """A CUDA source without its comments; strings, which hold the PTX, stay."""
    state, lines = "", []
    for line in source.split("\n"):
        state, code = advance(state, line)
        lines.append(code)
    return "\n".join(lines)


def tokens_of(text: str) -> list[str]:
    """Names, numbers and signs in order; an instruction with its qualifiers is one token."""
    return _TOKEN.findall(text)


@lru_cache(maxsize=_KEPT)
def code_sha256(source: str) -> str:
    """Identity of a kernel as code: of two that differ in comments and layout alone it is the same."""
    tokens = "\0".join(tokens_of(without_comments(source)))
    return hashlib.sha256(tokens.encode("utf-8", "surrogatepass")).hexdigest()
