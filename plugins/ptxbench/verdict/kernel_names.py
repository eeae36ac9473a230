"""Comparing kernel names across tools.

The cubin and CUPTI give mangled names, Nsight Compute gives demangled ones, with or without template arguments and
parameters. Names of one kernel must compare equal whatever tool printed them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")
_LITERAL = re.compile(r"L[a-z]n?[0-9]+E")
"""A template argument such as ``Li4E``: its digits are a value, not the length of a name."""
_LENGTH = re.compile(r"[0-9]{1,4}")
_OPENING, _CLOSING = "<([{", ">)]}"


def is_kernel_of(shown: str, mangled: Iterable[str]) -> bool:
    """Whether a tool's name ``shown`` can be one of the kernels ``mangled`` of an object.

    Mangled names must be equal. A demangled name matches when its qualified name, less template arguments, parameters
    and anonymous namespaces, occurs part by part in the mangled name, so instances of one template are not told apart.
    """
    names = tuple(mangled)
    if shown in names:
        return True
    if shown.startswith("_Z"):
        return False
    parts = _qualified_name(shown)
    return any(_contains(parts, name) for name in names)


def _qualified_name(demangled: str) -> tuple[str, ...]:
    """Return ``("ns", "kernel")`` of ``void ns::kernel<4>(float*)``."""
    text = _ANONYMOUS.sub("", demangled)
    depth, kept = 0, []
    for character in text:
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif depth == 0:
            kept.append(character)
    words = "".join(kept).split()
    # The return type of a template instance stands before the name.
    return tuple(part for part in words[-1].split("::") if part) if words else ()


def _contains(parts: tuple[str, ...], mangled: str) -> bool:
    """Whether the mangled name holds all parts, in order."""
    if not parts:
        return False
    if not mangled.startswith("_Z"):
        return parts == (mangled,)
    identifiers = _identifiers(mangled)
    return all(part in identifiers for part in parts)


def _identifiers(mangled: str) -> Iterator[str]:
    """Yield the length-prefixed identifiers of an Itanium-mangled name: ``ns`` and ``kernel`` of ``_ZN2ns6kernelE``."""
    position = 2
    while position < len(mangled):
        literal = _LITERAL.match(mangled, position)
        length = _LENGTH.match(mangled, position)
        if literal is not None:
            position = literal.end()
        elif length is not None:
            position = length.end() + int(length.group())
            yield mangled[length.end() : position]
        else:
            position += 1
