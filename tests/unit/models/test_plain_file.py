"""Files that are none."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.models.plain_file import NotPlainError, read_plain


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # A short name, relative to its folder: the whole may be longer than an address can be.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def a_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(101)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (os.mkfifo, "a pipe"),
        (Path.mkdir, "a folder"),
        (a_socket, "a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
        (lambda path: path.symlink_to(path), "a symbolic link"),
        (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
        (a_large_file, "expected at most 100 bytes, found 101"),
    ],
)
def test_what_is_not_a_file_is_not_read_nor_waited_for(tmp_path, make: Callable[[Path], object], found):
    make(tmp_path / "f")
    started = time.monotonic()
    with pytest.raises(NotPlainError, match=found):
        read_plain(tmp_path / "f", 100)
    assert time.monotonic() - started < 20


def test_a_device_is_not_opened():
    with pytest.raises(NotPlainError, match=r"expected a regular file, found a device"):
        read_plain(Path("/dev/zero"), 100)


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 100)
    assert read_plain(tmp_path / "f", 100) == b"x" * 100
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "g", 100)


def test_a_file_that_tells_no_size_is_bounded_too():
    with pytest.raises(NotPlainError, match=r"expected at most 3 bytes, found more"):
        read_plain(Path("/proc/self/status"), 3)
