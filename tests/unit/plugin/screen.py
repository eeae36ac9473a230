"""A terminal as far as pytest and the status line use one."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)


class Screen:
    """Lines of ``columns`` characters; what scrolls out at the top is kept."""

    def __init__(self, columns: int = 80, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        """Show what a program writes."""
        for arguments, command, character in _TOKEN.findall(text):
            if command:
                self._command(command, int(arguments) if arguments.isdigit() else 1)
            elif character == "\n":
                # As the line discipline of a terminal: a newline returns too.
                self._down()
                self.column = 0
            elif character == "\r":
                self.column = 0
            else:
                self._put(character)

    def text(self) -> list[str]:
        """Every line without what is blank at its end."""
        return ["".join(line).rstrip() for line in self.lines]

    def _put(self, character: str) -> None:
        if self.column == self.columns:
            self._down()
            self.column = 0
        line = self.lines[self.row]
        line += " " * (self.column + 1 - len(line))
        line[self.column] = character
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _command(self, command: str, count: int) -> None:
        line = self.lines[self.row]
        if command == "A":
            # Cursors do not go up beyond the top of what is visible.
            self.row = max(self.row - count, len(self.lines) - self.rows, 0)
        elif command == "C":
            self.column = min(self.column + count, self.columns - 1)
        elif command in "JK":
            del line[self.column :]
            if command == "J":
                del self.lines[self.row + 1 :]
        elif command != "m":
            raise AssertionError(f"unexpected sequence {command!r}")
