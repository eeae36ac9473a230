"""A folder that is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.report.new_folder import new_folder


def write(into: Path, *, fails: bool = False) -> None:
    with new_folder(into) as draft:
        (draft / "a").mkdir()
        (draft / "a" / "b").write_text("b")
        if fails:
            raise InputError("no")


@pytest.mark.parametrize("place", ["out", "new/deep/out", "empty", "link"])
def test_written_whole(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with pytest.raises(InputError, match="no"):
        write(tmp_path / place, fails=True)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    write(tmp_path / place)
    assert [path.name for path in (tmp_path / place).iterdir()] == ["a"]
    assert (tmp_path / place / "a" / "b").read_text() == "b"
    assert not any("draft" in path.name for path in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="expected a new or empty folder"):
        write(tmp_path / place)


def test_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("."))
    assert (tmp_path / "a" / "b").is_file()
    assert Path.cwd() == tmp_path


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    for place in ("file", "dangling"):
        with pytest.raises(InputError, match="expected a new or empty folder"):
            write(tmp_path / place)
    with pytest.raises(InputError, match=r"--into .*: expected a folder that can be written, found: Not a directory"):
        write(tmp_path / "file" / "out")
