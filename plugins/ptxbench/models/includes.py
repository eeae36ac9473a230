"""Several files of CUDA C++ as one: a solution's own headers, put in where they are included.

What the compiler's preprocessor decides is left to it. A file is put in at every place that includes it, so that
its guards and the conditions around it keep their meaning; ``#pragma once``, which means nothing in the file that is
compiled, becomes a guard.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

MAX_LENGTH = 4_000_000
"""Characters of the result: headers that include each other twice grow without end."""

_SCAN = re.compile(
    r"""
      //(?:\\\n|[^\n])*
    | /\*.*?\*/
    | \bR"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])*'
    | ^[ \t]*\#[ \t]*include[ \t]*"(?P<path>[^"\n]+)"
    | ^[ \t]*\#[ \t]*pragma[ \t]+once\b(?P<once>)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""Comments and literals, in which nothing is a directive, and the two directives."""


class Inlining:
    """One source of the files ``sources``, by normalized path."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        """Files that are in the result."""
        self._sources = sources
        self._guards = {path: f"PTXBENCH_ONCE_{index}" for index, path in enumerate(sources)}
        self._length = 0

    def text(self, path: str, within: tuple[str, ...] = ()) -> str:
        """The file ``path`` with its own files put in; ``within`` are the files that include it.

        Raises ValueError, which says why, for a path that leaves the files' tree, and for a result without end.
        """
        self.used.add(path)
        source = self._sources[path]
        self._length += len(source)
        if self._length > MAX_LENGTH:
            raise ValueError(f"its headers, put in where they are included, have more than {MAX_LENGTH} characters")
        once = False

        def put_in(match: re.Match[str]) -> str:
            nonlocal once
            if match["once"] is not None:
                once = True
                return ""
            if match["path"] is None:
                return match[0]
            found = self._find(path, match["path"])
            if found is None:
                return match[0]
            # In a circle only a guard would have ended it, and it would be closed by now.
            return "" if found in (*within, path) else self.text(found, (*within, path))

        text = _SCAN.sub(put_in, source)
        if within and not text.endswith("\n"):
            text += "\n"
        if once and within:
            guard = self._guards[path]
            text = f"#ifndef {guard}\n#define {guard}\n{text}#endif\n"
        return text

    def _find(self, including: str, included: str) -> str | None:
        """Which of the files is meant, seen from the file that includes it, then from the root; None for none."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(including), included))
        for path in (beside, posixpath.normpath(included)):
            if path in self._sources:
                return path
        if beside == ".." or beside.startswith(("../", "/")):
            raise ValueError(f"{including} includes {included!r}, which is outside of its sources")
        return None
