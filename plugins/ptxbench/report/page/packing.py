"""Texts of a run in few bytes, in a form that a page takes apart piece by piece.

Everything ends as base64, in which no text of a model or a tool can close an element or begin a script.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

LEVEL = 6
MOST_CHARS = 400_000
"""Of one text; of a longer one both ends are kept. A kernel or a log of this size is an accident."""
SHARED_CHARS = 500
"""Texts from this length on that begin conversations are kept once for all of them."""


def packed(value: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """``value`` as gzipped JSON in base64. The same value gives the same text."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return zipped(text)


def zipped(text: str) -> str:
    """``text`` gzipped, in base64."""
    return base64.b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode()


def shortened(text: str) -> str:
    """``text``, or both its ends with a remark between them."""
    if len(text) <= MOST_CHARS:
        return text
    half = MOST_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out of this page ...]\n{text[-half:]}"


class Texts:
    """Texts of one trajectory, each line of which is kept once.

    Kernels of a conversation differ in few lines, and the reply repeats its kernel: so this is most of the compression,
    and the page can compare two kernels by the numbers of their lines.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.texts: list[list[int]] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a text, which is kept once, as runs of line numbers: first, count, first, count, ..."""
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(self._runs(shortened(text)))
        return self._known[text]

    def _runs(self, text: str) -> list[int]:
        runs: list[int] = []
        for line in text.split("\n"):
            number = self._numbers.setdefault(line, len(self.lines))
            if number == len(self.lines):
                self.lines.append(line)
            if runs and runs[-2] + runs[-1] == number:
                runs[-1] += 1
            else:
                runs += [number, 1]
        return runs

    def data(self) -> dict[str, Any]:
        """What the page reads."""
        return {"lines": self.lines, "texts": self.texts}
