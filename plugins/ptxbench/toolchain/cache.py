"""The build cache: entries named by a hash of everything that decides a build, safe under many processes and kill -9.

Layout, below the cache folder: ``builds/KK/KEY/`` is an entry (``build.json``, ``kernel.so`` if the build succeeded,
``SHA256SUMS`` over both); ``artefacts/`` holds what all builds share; ``work/`` holds private folders of running
builds; ``locks/`` holds files to lock. An entry is prepared in a private folder and appears by one rename, so it is
complete or absent. Each private folder is locked by its process for as long as that lives; one that is not locked is a
dead process's and is removed. Entries are removed least recently used first when the cache outgrows its bound.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ptxbench.errors import InputError
from ptxbench.records.build import Build, BuildStatus
from ptxbench.records.candidate import Candidate
from ptxbench.toolchain.faults import disk_full

CACHE_VARIABLE = "PTXBENCH_CACHE"
DEFAULT_MAX_BYTES = 4 << 30

_BUILD, _OBJECT, _SUMS = "build.json", "kernel.so", "SHA256SUMS"
_GUARD = "work"
_LOCK_SUFFIX = ".lock"
_LOCK_DIGITS = 3
_STORE_ATTEMPTS = 5
"""Other processes that fill a small cache may evict an entry before the process that stored it gets to look at it."""


class Built(NamedTuple):
    """A build and, when it succeeded, its shared object in the cache, which nobody may change."""

    build: Build
    so_path: Path | None
    candidate: Candidate | None = None
    """What was built, where the toolchain built it: a profiler on another machine builds it there again."""


def default_cache_dir() -> Path:
    """``PTXBENCH_CACHE``, else ``ptxbench`` in the user's cache folder. Absolute: sandboxes run elsewhere."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ptxbench"


class BuildCache:
    """Entries on disk. Raises InputError when the folder cannot be written, from the constructor."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        # Absolute, because the compiler runs elsewhere.
        self._folder = folder.absolute()
        self._max_bytes = max_bytes
        self._entries = self._folder / "builds"
        self._work = self._folder / "work"
        self._locks = self._folder / "locks"
        self._artefacts = self._folder / "artefacts"
        try:
            for path in (self._entries, self._work, self._locks, self._artefacts):
                path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._work):
                pass
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_full(folder) from error
            raise InputError(
                f"expected a build cache folder that can be written; {folder} cannot: {error.strerror}. "
                f"Set {CACHE_VARIABLE} to a folder of yours."
            ) from error
        self.remove_stale_work()

    @property
    def folder(self) -> Path:
        """The cache's top folder."""
        return self._folder

    def load(self, key: str, *, candidate_sha256: str | None = None) -> Built | None:
        """The entry, marked as used now; None when there is none. A damaged entry is removed.

        With ``candidate_sha256`` so is one that is no build of this source, or whose object is another than it says.
        """
        entry = self._entry(key)
        identity = _identity(entry)
        try:
            text = (entry / _BUILD).read_bytes()
            content = (entry / _OBJECT).read_bytes() if (entry / _OBJECT).exists() else None
            if (entry / _SUMS).read_text() != _sums(text, content):
                raise ValueError("checksums differ")
            build = Build.model_validate_json(text)
            if (build.status is BuildStatus.OK) != (content is not None):
                raise ValueError("status and content differ")
            if candidate_sha256 is not None and not _is_of(build, content, candidate_sha256):
                raise ValueError("the entry is of another build")
        except (OSError, ValueError):
            # Absent, being removed or replaced by another process, or damaged; only the last is still there as it was.
            if identity is not None and _identity(entry) == identity:
                self._remove(entry)
            return None
        with contextlib.suppress(OSError):
            os.utime(entry)
        return Built(build, entry / _OBJECT if content is not None else None)

    def store(self, key: str, build: Build, shared_object: Path | None) -> Built:
        """Adds an entry and returns it; if another process was faster, returns that one's.

        Raises InputError when the entry is not there afterwards.
        """
        entry = self._entry(key)
        for _ in range(_STORE_ATTEMPTS):
            self._place(entry, build, shared_object)
            self.evict(keep=entry)
            stored = self.load(key)
            if stored is not None:
                return stored
        raise InputError(
            f"expected the build cache {self._folder} to keep what is written to it; the entry of a build that has "
            f"just succeeded is gone. Set {CACHE_VARIABLE} to a folder that nothing else cleans."
        )

    def _place(self, entry: Path, build: Build, shared_object: Path | None) -> None:
        with self.work_folder() as staging:
            content = shared_object.read_bytes() if shared_object else None
            text = build.model_dump_json().encode()
            (staging / _BUILD).write_bytes(text)
            if content is not None:
                (staging / _OBJECT).write_bytes(content)
                (staging / _OBJECT).chmod(0o444)
            (staging / _SUMS).write_text(_sums(text, content))
            entry.parent.mkdir(exist_ok=True)
            _rename_unless_there(staging, entry)

    def artefact(self, name: str, make: Callable[[Path], None]) -> Path:
        """A folder that ``make`` fills once for all processes, kept for good; its name says what is in it."""
        path = self._artefacts / name
        if not path.is_dir():
            with self.work_folder() as staging:
                make(staging)
                _rename_unless_there(staging, path)
        return path

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Holds the key, so that one process builds it while the others wait. The holder's death releases it."""
        # A bounded number of lock files that are never removed: removing one that others wait on breaks the lock.
        with (self._locks / key[:_LOCK_DIGITS]).open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A private folder on the cache's file system, removed at the end, by anyone if this process dies."""
        with (self._locks / _GUARD).open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_SH)
            descriptor, name = tempfile.mkstemp(suffix=_LOCK_SUFFIX, dir=self._work)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            folder = Path(name.removesuffix(_LOCK_SUFFIX))
            folder.mkdir()
        try:
            yield folder
        finally:
            _remove_work(Path(name))
            os.close(descriptor)

    def remove_stale_work(self) -> None:
        """Removes private folders of processes that died."""
        with (self._locks / _GUARD).open("w") as guard:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # folders are being made or removed right now; the next process cleans
            for lock in self._work.glob("*" + _LOCK_SUFFIX):
                with contextlib.suppress(OSError), lock.open("w") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_work(lock)

    def evict(self, keep: Path | None = None) -> None:
        """Removes least recently used entries, never ``keep``, until the cache is within its bound."""
        entries: list[tuple[float, int, Path]] = []
        for entry in self._entries.glob("*/*"):
            with contextlib.suppress(OSError):  # removed by another process meanwhile
                size = sum(item.stat().st_size for item in os.scandir(entry))
                entries.append((entry.stat().st_mtime, size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self._max_bytes:
                break
            if entry != keep:
                self._remove(entry)
                total -= size

    def _entry(self, key: str) -> Path:
        return self._entries / key[:2] / key

    def _remove(self, entry: Path) -> None:
        # Moved away by one rename first: no reader ever sees half of it.
        with self.work_folder() as folder, contextlib.suppress(OSError):
            entry.rename(folder / "removed")


def _remove_work(lock: Path) -> None:
    """Removes a private folder, then its lock. While a dead process's compiler writes there, both stay for later."""
    folder = lock.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        lock.unlink()


def _identity(entry: Path) -> tuple[int, int] | None:
    """What tells an entry from a later one of the same key; None when there is none."""
    try:
        found = os.lstat(entry)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _rename_unless_there(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_of(build: Build, content: bytes | None, candidate_sha256: str) -> bool:
    """Sums beside a file say that it is whole, and nothing of whose it is: whoever replaces it replaces them too."""
    same = content is None or build.so_sha256 == hashlib.sha256(content).hexdigest()
    return same and build.candidate_sha256 == candidate_sha256


def _sums(text: bytes, content: bytes | None) -> str:
    lines = [f"{hashlib.sha256(text).hexdigest()}  {_BUILD}\n"]
    if content is not None:
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {_OBJECT}\n")
    return "".join(lines)
