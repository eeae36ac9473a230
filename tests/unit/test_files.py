"""The one writer of whole files."""

import errno
import os

import pytest

from ptxbench.files import write_whole


def test_replaces_the_file_and_makes_its_folder(tmp_path):
    path = tmp_path / "new" / "folder" / "a.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["a.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_folder_in_its_place_is_the_systems_error(tmp_path):
    (tmp_path / "a.json" / "kept").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "a.json", b"new")
    assert os.listdir(tmp_path) == ["a.json"]
