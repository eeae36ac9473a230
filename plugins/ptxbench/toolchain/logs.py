"""The compiler's output as it is kept: without paths of the machine, without the resource report, bounded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ptxbench.records.build import MAX_LOG_CHARS

_HEAD_SHARE = 0.75
"""Share of a long log kept from its start, where the first errors are; the rest is its end, with the count."""

_ABSOLUTE = re.compile(r"(?<![\w.<>/~])/(?:[\w.+@-]+/+)+[\w.+@-]+")
# Numbered remarks stay: "ptxas info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored ...".
_RESOURCES = re.compile(r"^ptxas info +: (?!\(C\d+\)).*\n?(?:^    \d+ bytes stack frame.*\n?)?", re.MULTILINE)


class PathScrubber:
    """Replaces this machine's paths: below a folder it knows, by the name given to it; elsewhere, by the last part."""

    def __init__(self, names: Iterable[tuple[Path, str]]) -> None:
        spelled = {os.path.normpath(form): name for folder, name in names for form in (folder, folder.resolve())}
        # Longest first: folders lie in each other.
        self._names = sorted(spelled.items(), key=lambda item: -len(item[0]))

    def scrub(self, text: str) -> str:
        """``text`` without absolute paths."""
        return _ABSOLUTE.sub(lambda match: self._name(os.path.normpath(match.group())), text)

    def _name(self, path: str) -> str:
        for folder, name in self._names:
            if path.startswith(folder + os.sep):
                return os.path.join(name, path[len(folder) + 1 :])
        return os.path.basename(path)


def without_resources(text: str) -> str:
    """The log without ``-Xptxas -v``'s report, which is kept as KernelResources. Warnings and remarks stay."""
    return _RESOURCES.sub("", text)


def bounded(text: str) -> tuple[str, bool]:
    """At most MAX_LOG_CHARS characters, and whether something was cut out of the middle."""
    if len(text) <= MAX_LOG_CHARS:
        return text, False
    head = int(MAX_LOG_CHARS * _HEAD_SHARE)
    gap = f"\n[... {len(text) - MAX_LOG_CHARS} or more characters left out ...]\n"
    return text[:head] + gap + text[-(MAX_LOG_CHARS - head - len(gap)) :], True
