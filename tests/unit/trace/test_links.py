"""Links and pipes in a collection."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ptxbench.trace import FileError
from ptxbench.trace.links import expect_own, files_below, is_below
from ptxbench.trace.safetensors_file import BlobError, read_header
from ptxbench.trace.trace_set import read_solutions, read_trace_set
from tests.support.trace_sets import RMSNORM_DEFINITION, RMSNORM_WORKLOADS, copy_small


def test_a_link_within_is_a_file_of_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "x.json").write_text("{}")
    (root / "a" / "y.json").symlink_to("x.json")
    (tmp_path / "alias").symlink_to(root)
    assert [path.name for path in files_below(tmp_path / "alias", "a", "*.json")] == ["x.json", "y.json"]


def test_links_to_elsewhere_and_in_a_circle(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "root2").mkdir()
    (root / "out").symlink_to(tmp_path / "root2" / "x")
    (root / "circle").symlink_to("circle")
    assert not is_below(root, root / "out")
    assert is_below(root, root / "circle")
    with pytest.raises(FileError, match=r"expected a file in .*; found a link to .*root2/x.*cp -rL"):
        expect_own(root, root / "out")


@pytest.mark.parametrize("file", [RMSNORM_DEFINITION, RMSNORM_WORKLOADS, Path("solutions", "a.json")])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_file_of_a_collection_is_read_elsewhere_or_waited_for(tmp_path: Path, file: Path, kind: str) -> None:
    collection = copy_small(tmp_path)
    path = collection / file
    if path.exists():
        path.rename(tmp_path / "outside")
    if kind == "link":
        path.symlink_to(tmp_path / "outside")
    else:
        os.mkfifo(path)
    read = read_solutions if "solutions" in file.parts else read_trace_set
    with pytest.raises(FileError, match="a link to" if kind == "link" else "a pipe, socket or device") as caught:
        read(collection)
    assert caught.value.file == path


def test_a_blob_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.safetensors")
    with pytest.raises(BlobError, match="expected a regular file, found a pipe"):
        read_header(tmp_path / "x.safetensors")
