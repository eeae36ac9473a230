"""Code that is mapped in a candidate's process, as the kernel of the operating system tells.

The oracle reads it from outside, so the process cannot leave a mapping out. What was mapped and unmapped again between
two readings is not seen.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ptxbench.profiler.processes import descendants
from ptxbench.records import LoadedLibrary

_LINE = re.compile(
    r"(?P<begin>[0-9a-f]+)-(?P<end>[0-9a-f]+) ..(?P<execute>.). \S+ (?P<device>\S+) (?P<inode>\d+) *(?P<path>.*)"
)
_DELETED = " (deleted)"
_SHARED_MEMORY = f"/dev/zero{_DELETED}"
"""How the kernel spells anonymous memory that child processes share."""
_MOST_BYTES = 8 << 20
"""Of a maps file: some 100 bytes a line and up to 65,530 mappings (Linux, ``vm.max_map_count``). A larger one was
made so, by long paths, and counts as not told: lines are by address, and what is last would be hidden."""
ALLOWED = re.compile(
    r"lib(cuda|nvidia-[\w-]+|cupti|nvperf_\w+|cudadebugger|tvm_ffi|stdc\+\+|gcc_s|m|c|dl|rt|pthread|util|resolv|ffi"
    r"|crypto|ssl|z|lzma|expat)"
    r"(-[\w.]+)?\.so[\d.]*|ld-linux-[\w-]+\.so\.\d|libnss_\w+\.so[\d.]*"
)
"""Libraries that an object may need (``toolchain.rules.ALLOWED_NEEDED``), and those that the driver, CUPTI, TVM-FFI,
the C library and the interpreter's own modules load by themselves, at the time of a first use.
``libnvidia-ptxjitcompiler`` is one: what it compiled is seen as a foreign module."""
_PACKAGES = ("cuda.bindings", "cupti", "tvm_ffi")
"""What the sandbox's program imports."""
_WRITABLE = ("/dev/shm/", "/memfd:", "/tmp/", "/var/tmp/", "/proc/")
"""Where a candidate could have written a file itself, beside the folders that it is given."""


class Mapped(NamedTuple):
    """Executable mappings at one time."""

    files: frozenset[str]
    """Paths, as the kernel spells them; a deleted file's ends in `` (deleted)``."""
    anonymous_bytes: int
    readable: bool = True
    """False where the process kept its mappings from being read, or has ended."""


UNREADABLE = Mapped(frozenset(), 0, readable=False)


def mapped(pid: int) -> Mapped:
    """Executable mappings of a process and of all that descend from it."""
    found = [_of_process(process) for process in (pid, *descendants(pid))]
    if not found[0].readable:
        return UNREADABLE
    return Mapped(frozenset().union(*(each.files for each in found)), sum(each.anonymous_bytes for each in found))


def _of_process(pid: int) -> Mapped:
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as maps:
            text = maps.read(_MOST_BYTES + 1)
    except OSError:
        return UNREADABLE
    return parse(text) if 0 < len(text) <= _MOST_BYTES else UNREADABLE


def parse(text: str) -> Mapped:
    """Read ``/proc/PID/maps`` (proc(5))."""
    files: set[str] = set()
    anonymous = 0
    for line in text.split("\n"):  # the only character of a path that the kernel escapes
        found = _LINE.fullmatch(line)
        if found is None or found["execute"] != "x":
            continue
        path = found["path"]
        if path.startswith("/") and path != _SHARED_MEMORY:
            files.add(path)
        elif path not in ("[vdso]", "[vsyscall]", "[uprobes]"):
            anonymous += int(found["end"], 16) - int(found["begin"], 16)
    return Mapped(frozenset(files), anonymous)


def new_libraries(before: Mapped, after: Iterable[Mapped], own: str, private: str) -> tuple[LoadedLibrary, ...]:
    """Files mapped at any later time and not before. ``own`` is the candidate's object, ``private`` its own folder.

    The object is told by its name alone: the folder of that one sandbox says nothing to anybody.
    """
    paths = frozenset().union(*(each.files for each in after)) - before.files
    writable = (*_WRITABLE, f"{tempfile.gettempdir()}/", f"{private}/")
    return tuple(
        LoadedLibrary(path=Path(path).name if path == own else path, allowed=_allowed(path, own, writable))
        for path in sorted(paths)
    )


@cache
def _trusted_folders() -> tuple[str, ...]:
    """Extension modules of the interpreter and of what the sandbox's program imports, which it may import late."""
    folders = [Path(entry) for entry in sys.path if entry.endswith("/lib-dynload")]
    for package in _PACKAGES:
        with contextlib.suppress(ImportError):
            spec = importlib.util.find_spec(package)
            folders += map(Path, spec.submodule_search_locations or ()) if spec is not None else ()
    return tuple(f"{folder.resolve()}/" for folder in folders)


def _allowed(path: str, own: str, writable: tuple[str, ...]) -> bool:
    if path == own:
        return True
    # A library of a good name that the candidate wrote itself is none, and one that was deleted has no such name.
    if path.startswith(_trusted_folders()):
        return True
    return not path.startswith(writable) and bool(ALLOWED.fullmatch(Path(path).name))
