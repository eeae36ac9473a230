"""The layers around a candidate, each tried by itself: what the kernel refuses is said, and the rest still stands."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from . import filesystem, kernel, limits, syscalls
from .keeper import keep, memory_limit, relay

BASE = ("parent_death", "no_new_privileges", "limits")
"""Those that nothing can be in the way of."""
NAMESPACES = {
    "mount": kernel.CLONE_NEWNS,
    "network": kernel.CLONE_NEWNET,
    "ipc": kernel.CLONE_NEWIPC,
    "uts": kernel.CLONE_NEWUTS,
    "cgroup": kernel.CLONE_NEWCGROUP,
    "pid": kernel.CLONE_NEWPID,
}
OPTIONAL = (
    "seccomp",
    "not_dumpable",
    "user",
    "mount",
    "uid",
    "capabilities",
    "network",
    "proc",
    "pid",
    "ipc",
    "uts",
    "cgroup",
    "processes",
)
"""In the order of adding one to another where not all of them work together. In a user's own process, ``user`` allows
the other namespaces; ``uid`` needs what ``mount`` shows of folders that other users may not enter; CUDA does not start
in a process namespace whose ``/proc`` is another's (cudaErrorOperatingSystem, H200, driver 580)."""
TOOL = ("seccomp",)
"""Beside ``BASE``, what a profiler or sanitizer that starts this program leaves in place."""
ALL = (*BASE, *OPTIONAL)


class Place(NamedTuple):
    """Folders of one sandbox, and those that it shall not see."""

    folder: str
    work: str
    hidden: tuple[str, ...] = ()


class Layers:
    """What was asked for, and what became of it."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = frozenset(wanted)
        self.active: list[str] = []
        self.missing: dict[str, str] = {}

    def attempt(self, name: str, step: Callable[[], None]) -> bool:
        """Add a layer if it is wanted. Whether it is active now."""
        if name not in self.wanted:
            return False
        try:
            step()
        except (OSError, ValueError) as error:
            self.missing[name] = _reason(error)
            return False
        self.active.append(name)
        return True

    def withdraw(self, name: str, error: OSError) -> None:
        """Take back a layer that turned out not to hold."""
        self.active.remove(name)
        self.missing[name] = _reason(error)

    def has(self, name: str) -> bool:
        """Whether a layer is active."""
        return name in self.active

    def describe(self) -> dict[str, object]:
        """As the first message carries it."""
        return {"active": self.active, "missing": self.missing}


def _reason(error: Exception) -> str:
    # Without the path that open() adds: reasons are kept in evidence.
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def enclose(wanted: Collection[str], place: Place) -> Layers:
    """Put every wanted layer but ``seccomp`` around this process. With ``BASE`` alone it stays the same process.

    Else another one returns: the one that was started stays as the keeper of the candidate's, and ends as that ended.
    """
    layers = Layers(wanted)
    os.umask(0o022)
    layers.attempt("parent_death", limits.die_with_parent)
    if "uid" in layers.wanted:
        # To be passed through, and written to, by a user that is not known yet.
        os.chmod(place.folder, 0o711)
        os.chmod(place.work, 0o1777)
    if layers.wanted & frozenset(OPTIONAL) - {"seccomp"}:
        _enclose_apart(layers, place)
    else:
        layers.attempt("limits", limits.limit_resources)
    layers.attempt("no_new_privileges", partial(kernel.prctl, kernel.PR_SET_NO_NEW_PRIVS, 1))
    return layers


def close_calls(layers: Layers, *, tool: bool) -> None:
    """The last layer, when everything of ours is in place and the candidate is about to be loaded."""
    layers.attempt("seccomp", partial(syscalls.install, tool=tool))


def _enclose_apart(layers: Layers, place: Place) -> None:
    privileged = kernel.holds_capability(kernel.CAP_SYS_ADMIN)
    # Who reads the maps of the process, or attaches a debugger to it, must still be able to.
    may_trace = kernel.holds_capability(kernel.CAP_SYS_PTRACE)
    number = os.getpid()
    if not privileged:
        layers.attempt("user", _own_user_namespace)
    for name, flag in NAMESPACES.items():
        layers.attempt(name, partial(kernel.unshare, flag))
    _leave_keepers_behind(layers, place)
    layers.attempt("limits", limits.limit_resources)
    layers.attempt("uid", partial(_become_another, number, may_trace=may_trace))
    if privileged:
        layers.attempt("user", _own_user_namespace)
    layers.attempt("capabilities", kernel.drop_capabilities)
    layers.attempt("processes", partial(_limit_processes, layers))
    # Another user and a new namespace both reset these two.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    layers.attempt("not_dumpable", partial(_forbid_dumping, may_trace=may_trace))
    limits.die_with_parent()


def _leave_keepers_behind(layers: Layers, place: Place) -> None:
    """Go on in a new process, within the new namespaces; those before it wait for its end."""
    most_bytes, with_pid = memory_limit(), layers.has("pid")
    reading, writing = os.pipe()
    child = os.fork()
    if child and with_pid:
        relay(child, reading)
    if child:
        keep(child, most_bytes, report=None, whole_namespace=False)
    os.close(reading)
    limits.die_with_parent()
    _build_view(layers, place)
    if with_pid:
        child = os.fork()
        if child:
            keep(child, most_bytes, report=writing, whole_namespace=layers.has("proc"))
        limits.die_with_parent()
    os.close(writing)


def _build_view(layers: Layers, place: Place) -> None:
    with_mount = layers.has("mount")
    if with_mount:
        try:
            filesystem.narrow(place.folder, place.work, place.hidden)
        except OSError as error:
            layers.withdraw("mount", error)

    def own_proc() -> None:
        if not (with_mount and layers.has("pid")):
            raise OSError("it needs namespaces of mounts and processes")
        filesystem.show_own_processes()

    layers.attempt("proc", own_proc)


def _own_user_namespace() -> None:
    # The files of a process that is not dumpable belong to root.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _become_another(number: int, *, may_trace: bool) -> None:
    if os.getuid() != 0:
        raise OSError("only root can give a sandbox another user")
    _expect_tracing(may_trace=may_trace)
    limits.expect_usable_by_others()
    limits.become(limits.free_uid(number))


def _limit_processes(layers: Layers) -> None:
    if not (layers.has("uid") or layers.has("user")):
        raise OSError("they are counted together with the user's other ones")
    limits.limit_processes()


def _expect_tracing(*, may_trace: bool) -> None:
    if not may_trace:
        raise OSError("the harness itself, without CAP_SYS_PTRACE, could not look into it then")


def _forbid_dumping(*, may_trace: bool) -> None:
    _expect_tracing(may_trace=may_trace)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
