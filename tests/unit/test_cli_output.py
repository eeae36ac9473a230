"""What the command says where its answer cannot be printed to the end."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys

import pytest

from ptxbench import cli


class Broken(io.StringIO):
    """A stream that cannot be written."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


def run(monkeypatch: pytest.MonkeyPatch, command: list[str], number: int) -> tuple[int, list[str]]:
    """The exit status of a command that prints a line to such a stream, and how far it came."""
    came: list[str] = []

    def printing(_: argparse.Namespace) -> int:
        try:
            cli._print(["line"])
            came.append("to its end")
        finally:
            came.append("cleared up")
        return 0

    monkeypatch.setitem(cli._COMMANDS, command[0], printing)
    monkeypatch.setattr(sys, "stdout", Broken(number))
    status = cli.main(command)
    assert sys.stdout is None, "nothing may be flushed to it at exit"
    return status, came


def test_a_full_disk_is_one_clear_line_and_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback exits with 1, which of ``selftest`` means that an attack escaped."""
    assert run(monkeypatch, ["selftest"], errno.ENOSPC) == (cli.USAGE_ERROR, ["cleared up"])
    assert capsys.readouterr().err == (
        "ptxbench selftest: expected to print the answer, found that it cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [(["selftest"], 141), (["judge", "monday"], 141), (["compare", "one", "other"], 141), (["doctor"], 0)],
)
def test_a_reader_that_leaves_early_is_told_no_answer(
    monkeypatch: pytest.MonkeyPatch, command: list[str], status: int
) -> None:
    """0 is the answer that nothing escaped, or no verdict changed: it is not known before the end."""
    assert run(monkeypatch, command, errno.EPIPE) == (status, ["cleared up"])
