"""What the candidate's process sees of the file system: everything read-only, no homes, an empty private scratch."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterable
from glob import glob

from . import kernel

SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")
SCRATCH_BYTES = 64 << 20
SCRATCH_FILES = 4096
_HIDDEN = ("/home", "/root", "/mnt", "/media", "/srv", "/var/log", "/var/spool", "/var/mail", "/run/user")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "nvidia-caps*", "dxg")
_KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")


def needed_paths(folder: str) -> list[str]:
    """What the process needs wherever it lies: interpreter, packages, this program, its folder, libraries by path."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    program = os.path.dirname(os.path.abspath(__file__))
    devices = [path for name in _DEVICES for path in glob(f"/dev/{name}")]
    found = {sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), *sys.path, *libraries, program, folder}
    paths = {os.path.abspath(path) for path in found if path and os.path.exists(path)}
    # Linked folders are reached by their own names and by those of what they are links to.
    paths |= {os.path.realpath(path) for path in paths}
    return sorted(paths | set(devices), key=len)


def narrow(folder: str, work: str, hidden: Iterable[str]) -> None:
    """Build the view in this mount namespace. ``work``, within ``folder``, stays the one place to write to.

    Raises OSError, with what was built so far in place.
    """
    needed = needed_paths(folder)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.set_read_only("/", recursive=True)
    # Beside its folder lie those of others.
    for path in sorted({*_HIDDEN, *_homes(), *hidden, os.path.dirname(folder)} - {"/", *SCRATCH}):
        _cover(path, needed)
    # Device files that a candidate may open: the GPU's and those that programs expect.
    _cover("/dev", needed)
    os.makedirs("/dev/shm", exist_ok=True)
    for path in SCRATCH:
        _cover(path, needed, writable=True)
    kernel.set_read_only("/dev")
    _scratch(work)
    # A process sets up its own user namespace there.
    kernel.set_read_only("/proc", read_only=False)
    _guard_kernel_files()
    os.chdir(work)


def show_own_processes() -> None:
    """Show the processes of this process's own namespace only. Raises OSError."""
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    _guard_kernel_files()


def _guard_kernel_files() -> None:
    """Nothing that configures the kernel can be written, whoever's uid the process has."""
    for path in _KERNEL_FILES:
        if os.path.exists(path):
            kernel.mount(path, path, None, kernel.MS_BIND | kernel.MS_REC)
            kernel.set_read_only(path)


def _homes() -> set[str]:
    try:
        return {pwd.getpwuid(os.getuid()).pw_dir}
    except KeyError:
        return set()


def _scratch(path: str) -> None:
    options = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=1777"
    kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, options)


def _cover(path: str, needed: list[str], *, writable: bool = False) -> None:
    """Put an empty folder over one, in which only needed paths show. Nothing happens to one that is itself needed."""
    path = os.path.realpath(path)
    if not os.path.isdir(path) or any(_within(path, each) for each in needed):
        return
    shown = [each for each in needed if _within(each, path)]
    # Under another needed path it comes along.
    shown = [each for each in shown if not any(_within(each, other) and each != other for other in shown)]
    kept = [(each, os.open(each, os.O_PATH | os.O_CLOEXEC)) for each in shown]
    if writable:
        _scratch(path)
    else:
        flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
        kernel.mount("tmpfs", path, "tmpfs", flags, f"size=1m,nr_inodes={SCRATCH_FILES},mode=755")
    for each, descriptor in kept:
        _place(each, descriptor)
        os.close(descriptor)
    if not writable and path != "/dev":
        kernel.set_read_only(path)


def _place(path: str, descriptor: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    kernel.mount(f"/proc/self/fd/{descriptor}", path, None, kernel.MS_BIND | kernel.MS_REC)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
