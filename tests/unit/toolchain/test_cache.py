import errno
import hashlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import Build, BuildStatus, ToolchainIdentity
from ptxbench.toolchain import cache as cache_module
from ptxbench.toolchain.cache import BuildCache, Built, default_cache_dir

IDENTITY = ToolchainIdentity(
    nvcc="13.0.88", origin="pip", host_compiler="g++ 12", disassembler="none", flags=(), tvm_ffi="0.1", headers="light"
)
SPAWN = multiprocessing.get_context("spawn")


def key(number: int) -> str:
    return f"{number:064x}"[::-1]


def build(status: BuildStatus = BuildStatus.OK, log: str = "") -> Build:
    return Build(candidate_sha256="0" * 64, arch="h100", status=status, log=log, toolchain=IDENTITY)


def store(cache: BuildCache, number: int, content: bytes = b"object") -> Built:
    with cache.work_folder() as folder:
        (folder / "x.so").write_bytes(content)
        return cache.store(key(number), build(), folder / "x.so")


def test_what_is_stored_is_loaded(tmp_path: Path):
    cache = BuildCache(tmp_path)
    assert cache.load(key(1)) is None
    stored = store(cache, 1)
    assert stored.so_path is not None
    assert stored.so_path.read_bytes() == b"object"
    assert BuildCache(tmp_path).load(key(1)) == stored
    assert cache.load(key(2)) is None


def test_a_failed_build_is_stored_without_an_object(tmp_path: Path):
    cache = BuildCache(tmp_path)
    failed = build(BuildStatus.COMPILE_ERROR, "no ;")
    assert cache.store(key(1), failed, None) == Built(failed, None)
    assert cache.load(key(1)) == Built(failed, None)


def test_the_first_of_two_builds_stays(tmp_path: Path):
    cache = BuildCache(tmp_path)
    first = store(cache, 1, b"first")
    assert store(cache, 1, b"second") == first
    assert first.so_path is not None
    assert first.so_path.read_bytes() == b"first"


@pytest.mark.parametrize("name", ["build.json", "kernel.so", "SHA256SUMS"])
@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(b"x"), lambda p: p.write_bytes(b""), os.unlink])
def test_a_damaged_entry_is_no_entry_and_can_be_built_again(tmp_path: Path, name: str, damage: Callable[[Path], None]):
    cache = BuildCache(tmp_path)
    stored = store(cache, 1)
    assert stored.so_path is not None
    (stored.so_path.parent / name).chmod(0o644)
    damage(stored.so_path.parent / name)
    assert cache.load(key(1)) is None
    assert not stored.so_path.parent.exists()
    assert store(cache, 1) == stored


def test_an_entry_of_another_format_is_no_entry(tmp_path: Path):
    cache = BuildCache(tmp_path)
    stored = store(cache, 1)
    assert stored.so_path is not None
    text = (stored.so_path.parent / "build.json").read_text().replace('"schema_version":1', '"schema_version":2')
    (stored.so_path.parent / "build.json").write_text(text)
    (stored.so_path.parent / "SHA256SUMS").write_text(cache_module._sums(text.encode(), b"object"))
    assert cache.load(key(1)) is None


def test_an_entry_that_is_whole_and_of_another_build_is_no_entry(tmp_path: Path):
    """Sums beside it are no proof: a candidate that could write here replaced an object with them."""
    cache = BuildCache(tmp_path)
    own = build().model_copy(update={"so_sha256": hashlib.sha256(b"object").hexdigest()})
    for number, content, candidate in ((1, b"other", "0" * 64), (2, b"object", "1" * 64), (3, b"object", "0" * 64)):
        with cache.work_folder() as folder:
            (folder / "x.so").write_bytes(content)
            cache.store(key(number), own, folder / "x.so")
        found = cache.load(key(number), candidate_sha256=candidate)
        assert (found is not None) == (number == 3)
        assert (cache.load(key(number)) is not None) == (number == 3), "it is removed, so that it is built again"


def test_the_least_recently_used_entries_go_first(tmp_path: Path):
    size = 100_000
    cache = BuildCache(tmp_path, max_bytes=int(3.5 * size))
    for number in range(3):
        stored = store(cache, number, bytes(size))
        assert stored.so_path is not None
        os.utime(stored.so_path.parent, (1000 + number, 1000 + number))
    assert cache.load(key(0)) is not None  # used now
    store(cache, 3, bytes(size))
    assert [number for number in range(4) if cache.load(key(number))] == [0, 2, 3]
    total = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert total <= 3.5 * size


def test_an_entry_larger_than_the_bound_serves_its_own_build(tmp_path: Path):
    cache = BuildCache(tmp_path, max_bytes=10)
    assert store(cache, 1, bytes(1000)).so_path is not None
    assert store(cache, 2, bytes(1000)).so_path is not None
    assert cache.load(key(1)) is None


def test_work_folders_are_removed_at_the_end_and_not_before(tmp_path: Path):
    cache = BuildCache(tmp_path)
    with cache.work_folder() as folder:
        (folder / "x").touch()
        BuildCache(tmp_path).remove_stale_work()
        assert (folder / "x").exists()
    assert list((tmp_path / "work").iterdir()) == []


def hold_work(path: Path) -> None:
    with BuildCache(path).work_folder() as folder:
        (folder / "half").touch()
        (path / "ready").touch()
        time.sleep(60)


def test_work_of_a_killed_process_is_removed(tmp_path: Path):
    process = SPAWN.Process(target=hold_work, args=(tmp_path,))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    BuildCache(tmp_path)
    assert list((tmp_path / "work").glob("*/half"))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    BuildCache(tmp_path)
    assert list((tmp_path / "work").iterdir()) == []


def test_work_that_cannot_be_removed_yet_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = BuildCache(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda path, ignore_errors: None)  # a compiler writes meanwhile
        with cache.work_folder() as folder:
            (folder / "x").touch()
    assert (folder / "x").exists()
    cache.remove_stale_work()
    assert list((tmp_path / "work").iterdir()) == []


def count_up(path: Path, times: int) -> None:
    cache = BuildCache(path)
    for _ in range(times):
        with cache.locked(key(7)):
            value = int((path / "count").read_text())
            time.sleep(0.001)
            (path / "count").write_text(str(value + 1))


def test_a_key_is_held_by_one_process_at_a_time(tmp_path: Path):
    (tmp_path / "count").write_text("0")
    processes = [SPAWN.Process(target=count_up, args=(tmp_path, 25)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert (tmp_path / "count").read_text() == "50"


def churn(path: Path, seed: int) -> None:
    cache = BuildCache(path, max_bytes=30_000)
    for step in range(60):
        number = (seed * 7 + step * 3) % 10
        loaded = cache.load(key(number)) or store(cache, number, bytes([number]) * 5000)
        assert loaded.so_path is not None


def test_processes_that_store_evict_and_load_at_once_never_see_half_an_entry(tmp_path: Path):
    processes = [SPAWN.Process(target=churn, args=(tmp_path, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert list((tmp_path / "work").iterdir()) == []


def test_an_entry_that_others_evict_before_it_is_seen_is_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = BuildCache(tmp_path)
    evictions = []

    def evict(keep: Path) -> None:
        evictions.append(keep)
        if len(evictions) < 3:
            keep.rename(tmp_path / f"evicted{len(evictions)}")

    monkeypatch.setattr(cache, "evict", evict)
    assert store(cache, 3, b"x").so_path is not None
    assert len(evictions) == 3


def test_an_entry_that_replaces_the_one_being_read_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = BuildCache(tmp_path)
    stored = store(cache, 3, b"x").so_path
    assert stored is not None
    entry = stored.parent
    sums = cache_module._sums

    def replaced(text: bytes, content: bytes | None) -> str:
        monkeypatch.setattr(cache_module, "_sums", sums)
        entry.rename(tmp_path / "evicted")
        store(cache, 3, b"x")
        return "of half an entry"

    monkeypatch.setattr(cache_module, "_sums", replaced)
    assert cache.load(key(3)) is None
    assert cache.load(key(3)) is not None


def test_an_artefact_is_made_once(tmp_path: Path):
    cache = BuildCache(tmp_path)
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "lib").write_text("x")

    path = cache.artefact("stub", make)
    assert cache.artefact("stub", make) == path
    assert (path / "lib").read_text() == "x"
    assert len(made) == 1


def test_a_folder_that_cannot_be_written_is_the_user_s_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"build cache folder that can be written; .*file/cache cannot: .*PTXBENCH_CACHE"
    ):
        BuildCache(tmp_path / "file" / "cache")
    with pytest.raises(InputError, match="PTXBENCH_CACHE"):
        BuildCache(Path("/proc/ptxbench"))


def test_a_full_disk_is_an_infrastructure_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(**kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(InfrastructureError) as caught:
        BuildCache(tmp_path)
    assert caught.value.kind == "disk_full"


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PTXBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg/ptxbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache/ptxbench"
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"
    # A sandbox, told to hide the folder, works in another one than this process.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTXBENCH_CACHE", "own")
    assert default_cache_dir() == tmp_path / "own"
