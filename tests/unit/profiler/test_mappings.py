"""What the kernel tells of a process's mappings, of real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.profiler.mappings import UNREADABLE, Mapped, mapped, new_libraries, parse

PROGRAM = """
import ctypes, mmap, os, subprocess, sys
held, words = [], iter(sys.stdin.readline, "")
print("ready", flush=True)
for line in words:
    what, _, argument = line.strip().partition(" ")
    if what == "load":
        held.append(ctypes.CDLL(argument))
    elif what == "copy":
        for flag in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            held.append(mmap.mmap(-1, int(argument), flag | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_EXEC))
    elif what == "crowd":
        with open(argument, "wb+") as file:
            file.truncate(mmap.PAGESIZE)
            for number in range(2600):  # neighbours differ, so that none become one
                access = mmap.PROT_READ | number % 2 * mmap.PROT_WRITE
                held.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, access))
    elif what == "child":
        code = f"import ctypes; ctypes.CDLL({argument!r}); print(1, flush=True); input()"
        held.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        held[-1].stdout.readline()
    print("done", flush=True)
"""


class Loader:
    """A process that maps what it is told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() in ("ready", "done")

    def tell(self, line: str) -> Mapped:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._answer()
        return mapped(self.process.pid)


@pytest.fixture
def loader() -> Iterator[Loader]:
    subject = Loader()
    yield subject
    subject.process.kill()
    subject.process.communicate()


EXTENSIONS = Path(next(entry for entry in sys.path if entry.endswith("/lib-dynload"))).resolve()


def extension() -> Path:
    """One of the interpreter's own that no process here has mapped by itself."""
    found = [path for name in ("_lsprof", "audioop", "_testcapi") for path in EXTENSIONS.glob(f"{name}.*so")]
    return found[0]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A shared object of somebody's own."""
    return Path(shutil.copy(extension(), tmp_path / "libother.so"))


def shown(before: Mapped, *after: Mapped, own: str = "", private: str = "/nowhere") -> dict[str, bool]:
    return {library.path: library.allowed for library in new_libraries(before, after, own, private)}


def test_a_library_that_is_loaded_later_is_seen(loader: Loader, library: Path) -> None:
    before = mapped(loader.process.pid)
    assert before.readable
    assert any("libc" in path for path in before.files)
    after = loader.tell(f"load {library}")
    assert shown(before, after)[str(library)] is False
    assert shown(before, after, own=str(library))[library.name] is True, "without the folder of one sandbox"
    assert shown(before, before) == {}


def test_a_good_name_helps_no_file_that_a_candidate_may_have_written(
    loader: Loader, library: Path, tmp_path: Path
) -> None:
    before = mapped(loader.process.pid)
    named = tmp_path / "libnvidia-ptxjitcompiler.so.1"
    shutil.copy(library, named)
    after = loader.tell(f"load {named}")
    assert shown(before, after, private=str(tmp_path))[str(named)] is False
    named.unlink()
    path = f"{named} (deleted)"
    assert shown(before, mapped(loader.process.pid), own=path.removesuffix(" (deleted)"))[path] is False


def test_the_interpreter_may_import_late(loader: Loader) -> None:
    before = mapped(loader.process.pid)
    after = shown(before, loader.tell(f"load {extension()}"))
    assert after[str(extension())] is True
    assert all(after.values())


def test_code_in_anonymous_memory_is_measured(loader: Loader) -> None:
    before = mapped(loader.process.pid)
    after = loader.tell(f"copy {1 << 16}")
    assert after.anonymous_bytes - before.anonymous_bytes == 2 << 16
    assert shown(before, after) == {}


def test_a_child_s_mappings_count(loader: Loader, library: Path) -> None:
    before = mapped(loader.process.pid)
    assert shown(before, loader.tell(f"child {library}"))[str(library)] is False


def test_a_process_that_is_gone_cannot_be_read(loader: Loader) -> None:
    loader.process.kill()
    loader.process.wait()
    assert mapped(loader.process.pid) == UNREADABLE


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.580.159", True),
        ("/usr/local/nvidia/lib64/libcuda.so.1", True),
        ("/usr/lib/libnvidia-gpucomp.so.580.159", True),
        ("/lib/x86_64-linux-gnu/libgcc_s.so.1", True),
        ("/usr/lib/libcublas.so.13", False),
        ("/usr/lib/libnvrtc.so.13", False),
        ("/usr/lib/libcublasLt.so.13", False),
        ("/opt/site-packages/torch/lib/libtorch_cuda.so", False),
        ("/dev/shm/libm.so.6", False),
        ("/memfd:libm.so.6 (deleted)", False),
    ],
)  # fmt: skip
def test_what_the_driver_loads_by_itself_is_allowed(path: str, allowed: bool) -> None:
    text = f"7f00-7f10 r-xp 00000000 fd:01 77 {' ' * 20}{path}\n7f20-7f30 r--p 00000000 fd:01 77 /usr/lib/libdata.so\n"
    assert shown(Mapped(frozenset(), 0), parse(text)) == {path: allowed}


@pytest.mark.parametrize("other", ["/elsewhere/kernel.so", "/box/work/kernel.so", "/box/object/kernel.so (deleted)"])
def test_nothing_hides_behind_the_name_of_the_own_object(other: str) -> None:
    """Which is the only one that is told without its folder."""
    text = "".join(f"7f00-7f10 r-xp 00000000 fd:01 7 {path}\n" for path in ("/box/object/kernel.so", other))
    found = shown(Mapped(frozenset(), 0), parse(text), own="/box/object/kernel.so")
    assert found == {"kernel.so": True, other: False}


def test_lines_are_read_as_the_kernel_writes_them() -> None:
    text = (
        "00400000-00401000 r-xp 00000000 08:02 173521      /usr/bin/a b\n"
        "7f0000000000-7f0000003000 rwxp 00000000 00:00 0 \n"
        "7f0000004000-7f0000005000 r-xp 00000000 00:00 0    [anon: jit]\n"
        "7f0000006000-7f0000007000 rw-p 00000000 00:00 0    [stack]\n"
        "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0    [vdso]\n"
        "no line of the kernel\n"
    )
    assert parse(text) == Mapped(frozenset({"/usr/bin/a b"}), 0x4000)


def test_more_mappings_than_are_read_are_none_that_can_be_read(loader: Loader, tmp_path: Path):
    # Mappings with paths of 4 kB stand in front of a library's, beyond what is read of them.
    folder = tmp_path.joinpath(*["x" * 250] * 14)
    folder.mkdir(parents=True)
    assert loader.tell(f"crowd {folder / 'file'}") == UNREADABLE
