"""One line below what pytest prints, on a terminal only, rewritten in place and gone before pytest writes on."""

from __future__ import annotations

import os
import re
import threading
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

INTERVAL_S = 0.5
"""Between two drawings, at least."""
DEFAULT_COLUMNS = 80

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASE_BELOW, _ERASE_REST, _UP = "\x1b[J", "\x1b[K", "\x1b[1A"


class StatusLine:
    """Draws ``text()`` below the cursor every half second, in a thread of its own.

    pytest writes through ``file``, so that it is known where the cursor stands and the line can be erased first. The
    line itself goes to a copy of the terminal's descriptor, since pytest captures the original while a test runs.
    """

    def __init__(self, file: TextIO, text: Callable[[], str], columns: Callable[[], int] | None = None) -> None:
        self.file: Any = _Watched(file, self)
        self._file = file
        self._text = text
        self._descriptor = os.dup(file.fileno())
        self._columns = columns or self._terminal_columns
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ptxbench-status-line", daemon=True)
        self._shown = ""
        self._current = ""

    def start(self) -> None:
        """Begin to draw."""
        self._thread.start()

    def close(self) -> None:
        """Erase the line and draw no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock, suppress(OSError):
            self._hide()
        os.close(self._descriptor)

    def draw(self) -> None:
        """Show the text as it is now."""
        text = self._text()
        with self._lock:
            if text == self._shown:
                return
            self._hide()
            columns = self._columns()
            width = sum(map(_width, self._current))
            # At the right edge a terminal cannot be told to come back to where it is.
            if text and (width == 0 or width % columns):
                back = f"{_UP}\r" + (f"\x1b[{width % columns}C" if width else "")
                self._write(f"\n\r{text[: columns - 1]}{_ERASE_REST}{back}")
                self._shown = text

    def write(self, text: str) -> int:
        """pytest's own output."""
        with self._lock:
            self._hide()
            written = self._file.write(text)
            self._file.flush()
            line = re.split(r"[\r\n]", text)[-1]
            self._current = line if line != text else self._current + line
            self._current = _SEQUENCE.sub("", self._current)
            return written

    def _run(self) -> None:
        # A terminal that went away is no reason to disturb a run.
        with suppress(OSError):
            while not self._ended.wait(INTERVAL_S):
                self.draw()

    def _terminal_columns(self) -> int:
        # Of our own descriptor: the others are captured. A terminal may not know its size.
        return os.get_terminal_size(self._descriptor).columns or DEFAULT_COLUMNS

    def _hide(self) -> None:
        if self._shown:
            self._write(_ERASE_BELOW)
            self._shown = ""

    def _write(self, text: str) -> None:
        data = text.encode("ascii", "replace")
        while data:
            data = data[os.write(self._descriptor, data) :]


class _Watched:
    """A file whose writing goes through the status line."""

    def __init__(self, file: TextIO, line: StatusLine) -> None:
        self._file = file
        self._line = line

    def write(self, text: str) -> int:
        """As a file's."""
        return self._line.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        return getattr(self._file, name)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
