"""What a candidate in the sandbox can not do, tried by native code in the real program inside its real layers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ptxbench.profiler.containment import ALL, BASE, OPTIONAL, describe_here
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.worker import ALWAYS, SANDBOX_PROGRAM, Worker
from ptxbench.records import Containment, RunStatus
from tests.conftest import ROOT
from tests.support import contained
from tests.unit.profiler.stand_in import is_alive

ESCAPES = Path(contained.__file__).with_name("escapes.cpp")
NOBODY = 65_534
CALM = tuple(layer for layer in OPTIONAL if layer != "seccomp")
"""Without the filter, so that a candidate may do its worst to the other layers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("contained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(contained.install_stubs(path)))
        yield path


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, str]:
    """What came of every escape."""
    so_path = contained.build(ESCAPES, folder / "escapes.so")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0ptxbench-test-abstract")
        listening.listen()
        worker = contained.start()
        try:
            worker.load(contained.job(so_path))
            worker.call()
            text = os.pread(worker._printed.fileno(), 1 << 20, 0).decode() if worker._printed else ""
        finally:
            worker.close()
    return dict(line.split(maxsplit=1) for line in text.splitlines())


@cache
def active_here() -> Containment:
    return describe_here()


def needs(*layers: str) -> None:
    """Skip where this machine's kernel does not give these layers, as ``ptxbench doctor`` would say."""
    missing = active_here().missing
    if refused := {layer: missing[layer] for layer in layers if layer in missing}:
        pytest.skip(f"this machine has no {refused}")


REFUSED = {
    "seccomp": (
        *("clone", "libc_fork", "execve", "setsid", "setpgid", "kill_init", "kill_parent", "kill_all", "kill_group"),
        *("tkill", "ptrace", "process_vm_readv", "pidfd_open", "unshare_user", "unshare_mount", "mount", "umount"),
        *("chroot", "bpf", "perf_event_open", "keyctl", "init_module", "io_uring_setup", "userfaultfd", "personality"),
        *("clock_settime", "keep_living", "dumpable", "subreaper", "inet", "inet6", "packet"),
    ),
    "mount": ("write_/etc/ptxbench", "write_/usr/ptxbench", "write_object", "write_folder"),
    "proc": ("write_/proc/sys/kernel/core_pattern",),
    "uid": ("setuid",),
    "capabilities": ("raise_limit",),
    "network": ("abstract",),
    "ipc": ("shared_memory",),
}
ERRORS = {"seccomp": {"EPERM"}, "mount": {"EROFS", "EACCES"}, "proc": {"EROFS", "EACCES"}}
ERRORS |= {"capabilities": {"EPERM"}, "uid": {"EPERM", "EINVAL"}}  # EINVAL: its user namespace has no root
ERRORS |= {"network": {"ECONNREFUSED"}, "ipc": {"ENOENT"}}


@pytest.mark.parametrize("layer", REFUSED)
def test_escapes_are_refused(layer: str, told: dict[str, str]) -> None:
    needs(layer)
    found = {name: told[name] for name in REFUSED[layer]}
    assert set(found.values()) <= ERRORS[layer], found


def test_other_machines_system_calls_are_refused(told: dict[str, str]) -> None:
    needs("seccomp")
    if "x32" not in told:
        pytest.skip("x86-64 alone has these")
    assert told["fork"] == told["x32"] == "EPERM"
    assert told["i386"] in ("EPERM", "ENOSYS")


def test_what_a_candidate_needs_is_allowed(told: dict[str, str]) -> None:
    assert {told[name] for name in ("thread", "unix", "write_here", "kill_self")} == {"done"}


def test_its_keepers_are_closed_to_it(told: dict[str, str]) -> None:
    needs("uid")
    assert {told["parent_memory"], told["parent_environment"]} <= {"EACCES", "EPERM"}


def test_it_sees_no_files_of_others(told: dict[str, str]) -> None:
    needs("mount")
    assert told["memory_device"] == told["kernel_log"] == "ENOENT"
    assert {told[f"entries_{path}"] for path in ("/var/tmp", "/dev/shm", "/home")} == {"0"}
    # Its own folder, the stubs of this test, and what the interpreter and the harness are read from.
    read = [Path(sys.prefix), Path(sys.base_prefix), ROOT]
    needed = {path.parts[2] for path in read if path.parts[:2] == ("/", "tmp")}
    assert int(told["entries_/tmp"]) <= 2 + len(needed)
    # Three standard streams, the channel and the listing itself; whatever this test's call has opened before.
    assert told["write_/dev/ptxbench"] in ("EROFS", "EACCES")


def test_files_and_disk_are_limited(told: dict[str, str]) -> None:
    assert told["file_mib"] == "16"
    needs("mount")
    assert int(told["disk_mib"]) <= 64


def test_every_layer_is_active_or_has_a_reason() -> None:
    found = active_here()
    assert {*found.active, *found.missing} == set(ALL)
    assert not set(found.active) & set(found.missing)
    assert set(BASE) <= set(found.active)
    assert all(found.missing.values())


def test_each_layer_can_stand_alone(tmp_path: Path) -> None:
    started = {}
    for layer in OPTIONAL:
        work = tmp_path / layer / "work"
        work.mkdir(parents=True)
        command = [sys.executable, "-P", "-s", str(SANDBOX_PROGRAM), "--describe", f"--layers={layer}"]
        started[layer] = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE)
    for layer, process in started.items():
        found = json.loads(process.communicate(timeout=60)[0])
        assert {*found["active"], *found["missing"]} == {*BASE, layer}
        assert set(BASE) <= set(found["active"])


AS_IN_A_CONTAINER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from sandbox import syscalls
syscalls.REFUSED = {name: syscalls.REFUSED[name] for name in ("unshare", "mount", "perf_event_open")}
syscalls._PRCTL_REFUSED, syscalls._MEMORY = (), {}
syscalls.install(tool=True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_where_namespaces_are_refused_the_other_layers_stand(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    describe = [sys.executable, "-P", "-s", str(SANDBOX_PROGRAM), "--describe", f"--layers={','.join(OPTIONAL)}"]
    command = [sys.executable, "-c", AS_IN_A_CONTAINER, str(SANDBOX_PROGRAM.parents[1]), *describe]
    found = json.loads(subprocess.run(command, cwd=work, capture_output=True, check=True, timeout=60).stdout)
    assert {*found["active"], *found["missing"]} == set(ALL)
    assert {*BASE, "seccomp", "capabilities"} <= set(found["active"])
    refused = {name: found["missing"][name] for name in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")}
    assert set(refused.values()) == {"unshare: Operation not permitted"}


def test_an_unprivileged_user_has_layers_too() -> None:
    """As another user, with an interpreter that it may run."""
    python = Path("/usr/bin/python3")
    if os.getuid() != 0 or not python.exists():
        pytest.skip("needs root, to become somebody else, and a system's Python")
    version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    if tuple(map(int, version.stdout.split())) < (3, 11):
        pytest.skip("the system's Python is older than 3.11")
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        folder = Path(parent)
        program = folder / "program"
        program.mkdir()
        for path in SANDBOX_PROGRAM.parent.glob("*.py"):
            (program / path.name).write_bytes(path.read_bytes())
        work = folder / "folder" / "work"
        work.mkdir(parents=True)
        for path in (folder, work.parent, work):
            os.chown(path, NOBODY, NOBODY)
        command = [
            str(python),
            "-P",
            "-s",
            str(program / "__main__.py"),
            "--describe",
            f"--layers={','.join(OPTIONAL)}",
        ]
        done = subprocess.run(
            command, cwd=work, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {*found["active"], *found["missing"]} == set(ALL)
    assert found["missing"]["uid"] == "only root can give a sandbox another user"
    assert {*BASE, "seccomp"} <= set(found["active"])


ESCAPING = """
    for (int index = 0; index < 20; ++index)
        if (fork() == 0) {
            setsid();
            if (fork()) _exit(0);
            signal(SIGTERM, SIG_IGN);
            for (;;) pause();
        }
    usleep(100000);
"""
THREADS = """
    int count = 0;
    pthread_t thread;
    auto waits = [](void*) -> void* { pause(); return nullptr; };
    while (count < 5000 && pthread_create(&thread, nullptr, waits, nullptr) == 0) ++count;
    printf("%d\\n", count);
    fflush(stdout);
"""
HOG = """
    volatile char* all = (char*)malloc(256 << 20);
    for (int at = 0; at < 256 << 20; at += 4096) all[at] = 1;
    pause();
"""
CANDIDATES = {
    "fault": "*(volatile int*)8 = 1;",
    "aborts": "abort();",
    "exits": "_exit(3);",
    "kills_itself": "kill(getpid(), SIGKILL);",
    "raises": "raise(SIGTERM);",
    "stops": "kill(getpid(), SIGSTOP);",
    "threads": THREADS,
    "many_threads": THREADS.replace("count < 5000", "count < 1000").replace("printf", "for (;;) pause(); printf"),
    "hog": HOG,
    "double_fork": ESCAPING,
    "bomb": "if (fork() == 0) for (;;) fork();",
}
HEADERS = ("csignal", "cstdio", "cstdlib", "fcntl.h", "pthread.h", "unistd.h")


@pytest.fixture(scope="module")
def candidates(folder: Path) -> Path:
    """One object with every candidate, by its symbol."""
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    bodies = [f'extern "C" int {name}() {{ {body} return 0; }}\n' for name, body in CANDIDATES.items()]
    return contained.build_text(includes + "".join(bodies), folder / "candidates.so")


def run(candidates: Path, name: str, layers: tuple[str, ...] = OPTIONAL) -> Worker:
    """A sandbox with this candidate, loaded."""
    worker = contained.start(layers)
    worker.load(contained.job(candidates, name))
    return worker


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not any(map(is_alive, pids))


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("fault", "was ended by SIGSEGV"),
        ("aborts", "was ended by SIGABRT"),
        ("exits", "exited with code 3"),
        ("kills_itself", "was ended by SIGKILL"),
        ("raises", "was ended by SIGTERM"),
    ],
)
def test_its_end_is_told_as_it_was(candidates: Path, name: str, ending: str) -> None:
    worker = run(candidates, name)
    pids = contained.family(worker)
    try:
        with pytest.raises(WorkerError) as caught:
            worker.call()
    finally:
        worker.close()
    assert (caught.value.status, str(caught.value)) == (RunStatus.CRASHED, f"the process {ending} during a call")
    assert gone(pids)


def test_a_process_that_stopped_itself_is_ended(candidates: Path) -> None:
    worker = run(candidates, "stops")
    pids = contained.family(worker)
    with pytest.raises(WorkerError, match="no answer within"):
        worker.call(0.2)
    begin = time.monotonic()
    worker.close()
    assert time.monotonic() - begin < 20
    assert gone(pids)


def test_threads_are_limited(candidates: Path) -> None:
    needs("processes")
    worker = run(candidates, "threads")
    worker.call()
    assert 100 < int(worker.output_tail()) < 512
    worker.close()


@pytest.mark.parametrize("name", ["double_fork", "bomb"])
@pytest.mark.parametrize("layers", [CALM, ("processes", "uid", "mount")], ids=["namespace", "no namespace"])
def test_no_process_is_left(candidates: Path, layers: tuple[str, ...], name: str) -> None:
    needs("mount", "uid", "pid", "processes")
    worker = run(candidates, name, layers)
    worker.call()
    time.sleep(0.1)
    pids = contained.family(worker)
    assert len(pids) > 10
    worker.close()
    assert gone(pids)


@pytest.mark.parametrize("layers", [CALM, ("processes", "uid", "mount")], ids=["namespace", "no namespace"])
def test_no_process_is_left_by_a_candidate_that_ended(candidates: Path, layers: tuple[str, ...]) -> None:
    needs("mount", "uid", "pid", "processes")
    worker = run(candidates, "double_fork", layers)
    worker.call()
    pids = contained.family(worker)
    assert len(pids) > 10
    worker.notify("quit")
    assert worker.exit_code(5) == 0
    assert gone([pid for pid in pids if pid != worker.process.pid])
    worker.close()


def test_host_memory_is_limited(folder: Path, candidates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The sandbox's own program decides the limit; a copy of it with a smaller one stands in.
    copy = folder / "program"
    copy.mkdir()
    for path in SANDBOX_PROGRAM.parent.glob("*.py"):
        text = path.read_text().replace("LEAST_MEMORY_BYTES = 2 << 30", "LEAST_MEMORY_BYTES = 96 << 20")
        (copy / path.name).write_text(text.replace("MEMORY_SHARE = 0.5", "MEMORY_SHARE = 0.0"))
    monkeypatch.setattr("ptxbench.profiler.worker.SANDBOX_PROGRAM", copy / "__main__.py")
    worker = run(candidates, "hog")
    with pytest.raises(WorkerError, match="was ended by SIGKILL"):
        worker.call()
    assert "MiB of host memory and 1 threads, 96 MiB and 512 are allowed" in worker.output_tail()
    worker.close()


def test_threads_that_the_kernel_does_not_count_are_counted_by_the_keeper(candidates: Path) -> None:
    needs("pid")
    worker = run(candidates, "many_threads", ("mount", "pid", "proc"))
    with pytest.raises(WorkerError, match="was ended by SIGKILL"):
        worker.call()
    assert "are allowed" in worker.output_tail()
    worker.close()


def test_containment_is_told_before_the_candidate_is_loaded(folder: Path) -> None:
    worker = contained.start(("seccomp",))
    assert worker.containment is not None
    assert set(worker.containment.active) == {*ALWAYS, *BASE, "seccomp"}
    worker.close()
