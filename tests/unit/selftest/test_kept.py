"""The file that a self-test keeps: plain or compressed, whole, and found by what was measured."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.selftest import kept as module
from ptxbench.selftest.kept import Kept, Store, read
from ptxbench.selftest.subjects import load_subjects
from tests.unit import factories as make

STEM = "selftest_h100"


def entry(name: str = "attacks/decoy/one", **changes: object) -> Kept:
    kept = Kept(
        name=name,
        source_sha256=make.digest("a"),
        case=make.GEMM,
        commit="unknown",
        kept_at="2026-11-30T00:00:00+00:00",
        build=make.make_build(),
        evidence=make.make_evidence(),
    )
    return kept.model_copy(update=changes)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path, STEM, "h100")
    store.keep(entry())
    store.keep(entry("honest/two", without=("families",)))
    store.write()
    assert [path.name for path in tmp_path.iterdir()] == [f"{STEM}.json"]
    assert list(Store(tmp_path, STEM, "h100")) == [entry(), entry("honest/two", without=("families",))]


def test_a_large_file_is_compressed_and_a_small_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, STEM, "h100")
    store.add([entry()])
    store.write()
    monkeypatch.setattr(module, "PLAIN_BYTES", 100)
    store.write()
    (packed,) = tmp_path.iterdir()
    assert packed.name == f"{STEM}.json.gz"
    first = packed.read_bytes()
    store.write()
    assert packed.read_bytes() == first, "equal entries are equal files"
    assert read(tmp_path / f"{STEM}.json") == (entry(),)


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.json").write_text('{"schema_version": 1, "arch": "h100", "entries": [{}]}')
    with pytest.raises(InputError, match=r"not what a self-test kept: Field required at entries\.0\.name"):
        Store(tmp_path, STEM, "h100")
    (tmp_path / f"{STEM}.json.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=rf"{STEM}\.json\.gz: .*cannot be read"):
        Store(tmp_path, STEM, "h100")


def test_a_file_of_another_architecture_is_said(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.json").write_text('{"schema_version": 1, "arch": "b200", "entries": []}')
    with pytest.raises(InputError, match="expected what a self-test kept of h100, found that of b200"):
        Store(tmp_path, STEM, "h100")


def test_what_was_built_and_measured_of_another_source_answers_for_none() -> None:
    subject = load_subjects(make.ROOT, "h100")[-1]
    sha256 = subject.candidate.sha256
    own: dict[str, Any] = {"candidate_sha256": sha256}
    evidence = make.make_evidence(subject.case, **own)
    measured = entry(
        subject.name, source_sha256=sha256, case=subject.case.name, build=make.make_build(**own), evidence=evidence
    )
    store = Store(None, STEM, "h100")
    store.add([measured])
    assert store.current(subject) == measured
    store.add([measured.model_copy(update={"build": make.make_build(), "evidence": make.make_evidence(subject.case)})])
    assert store.current(subject) is None


def test_a_damaged_compressed_file_is_said(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"some text" * 1000))
    packed[12:20] = b"\xff" * 8
    (tmp_path / f"{STEM}.json.gz").write_bytes(packed)
    with pytest.raises(InputError, match=r"cannot be read: .*; move the file away, or name another folder"):
        Store(tmp_path, STEM, "h100")


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError, match=r"--record: expected a folder that can be written.*name another"):
            Store(folder, STEM, "h100").expect_writable()
    Store(tmp_path / "new", STEM, "h100").expect_writable()
    assert list((tmp_path / "new").iterdir()) == []
    Store(None, STEM, "h100").expect_writable()


def test_what_cannot_be_written_at_the_end_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder filled up, or went away, while the device worked: an hour of it is not lost."""
    folder, elsewhere = tmp_path / "records", tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.setattr(module, "WRITE_S", 0.0)
    store = Store(folder, STEM, "h100")
    folder.touch()
    store.keep(entry())
    with pytest.raises(InfrastructureError, match=r"what was measured is kept in \S+: go on with --record") as caught:
        store.write()
    assert caught.value.kind == "disk_full"
    (kept,) = elsewhere.iterdir()
    assert list(Store(kept, STEM, "h100")) == [entry()]
    folder.unlink()
    store.write()
    assert list(Store(folder, STEM, "h100")) == [entry()], "a folder that can be written again is used again"


def test_what_has_left_the_corpora_is_forgotten() -> None:
    store = Store(None, STEM, "h100")
    store.add([entry(), entry("honest/two")])
    store.prune({"honest/two"})
    assert [kept.name for kept in store] == ["honest/two"]
