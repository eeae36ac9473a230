"""What a worker may see, and that nothing of it is left: processes, groups, folders, spares."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import worker as module
from ptxbench.profiler.environment import import_path, minimal_environment, parent_folder
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.worker import Command, Worker, sandbox_command
from tests.unit.profiler.stand_in import CONNECT, HONEST, LOADED, READY, Start, is_alive, write_program

SERVING = CONNECT + READY + LOADED
GRANDCHILD = 'child = subprocess.Popen(["sleep", "100"])\n'


def tell(worker: Worker) -> Any:
    """What a program reports as its job's error: JSON in an error's text."""
    worker.wait_ready()
    with pytest.raises(WorkerError) as caught:
        worker.load({})
    return json.loads(str(caught.value))


def telling(expression: str) -> str:
    """A program that reports the value of an expression when it gets its job."""
    return f'{CONNECT}{READY}hear()\nsay(json.dumps({{"error": json.dumps({expression})}}).encode())\nhear()\n'


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def test_environment_holds_no_secret(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "USER", "LD_PRELOAD_NOT"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    worker = start(telling("dict(os.environ)"))
    environment = tell(worker)
    assert "secret" not in environment.values()
    kept = {"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH"}
    given = {"PATH", "HOME", "TMPDIR", "CUDA_CACHE_DISABLE", "PYTHONDONTWRITEBYTECODE"}
    # The interpreter itself may set its own locale.
    assert given <= set(environment) <= kept | given | {"LC_CTYPE"}
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert environment["HOME"] == environment["TMPDIR"] == str(worker.work)


OPEN_FILES = """[os.readlink(path) for path in (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
if os.path.exists(path)]"""


def test_process_inherits_one_channel_and_nothing_else(start: Start) -> None:
    with Path(__file__).open() as ours:
        os.set_inheritable(ours.fileno(), True)
        worker = start(telling(OPEN_FILES))
    null, output, errors, channel = tell(worker)
    assert null == "/dev/null"
    assert output == errors == str(worker.folder / "output")
    assert channel.startswith("socket:")


def test_process_has_a_session_of_its_own(start: Start) -> None:
    worker = start(telling("[os.getsid(0), os.getpgid(0)]"))
    assert tell(worker) == [worker.process.pid, worker.process.pid]


def test_folder_is_private_and_removed(start: Start, tmp_path: Path) -> None:
    worker = start(SERVING + 'open("scratch", "w").write("x")\nhear()\n')
    worker.wait_ready()
    assert worker.folder.stat().st_mode & 0o777 == 0o700
    report = tmp_path / "report"
    report.mkdir()
    (report / "log").write_text("x")
    worker.also_remove(report)
    worker.load({})
    worker.close()
    assert not worker.folder.exists()
    assert not report.exists()
    worker.close()


@pytest.mark.parametrize("trap", ["os.mkfifo('output')", "os.symlink('/dev/zero', 'output')", "os.mkdir('output')"])
def test_what_takes_the_place_of_the_output_is_never_opened(start: Start, trap: str) -> None:
    worker = start(f"{SERVING}print('before', flush=True); os.chdir('..'); os.unlink('output'); {trap}\n{HONEST}")
    worker.wait_ready()
    worker.load({})
    worker.call()
    assert worker.output_tail() == "before\n"


def test_folder_that_is_nested_beyond_recursion_is_removed(start: Start) -> None:
    dig = "for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    worker = start(SERVING + dig + HONEST)
    worker.wait_ready()
    worker.load({})
    worker.call()
    worker.close()
    assert not worker.folder.exists()


def test_close_ends_the_whole_group(start: Start) -> None:
    worker = start(GRANDCHILD + telling("child.pid"))
    grandchild = tell(worker)
    assert is_alive(grandchild)
    worker.close()
    assert not is_alive(worker.process.pid)
    assert ends_within(grandchild, 5)


@pytest.mark.parametrize("deed", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_group_is_ended_when_its_leader_went_first(start: Start, deed: str) -> None:
    body = GRANDCHILD + SERVING + f"print(child.pid, flush=True)\nhear(); {deed}\n"
    worker = start(body)
    worker.wait_ready()
    worker.load({})
    with pytest.raises(WorkerError, match="during a call"):
        worker.call()
    grandchild = int(worker.output_tail())
    assert is_alive(grandchild)
    worker.close()
    assert ends_within(grandchild, 5)


def test_group_is_ended_when_a_tool_ended_before_connecting(start: Start) -> None:
    worker = start(GRANDCHILD + "print(child.pid, flush=True)\n", by_path=True)
    with pytest.raises(InfrastructureError, match="before connecting"):
        worker.wait_ready()
    grandchild = int(worker.output_tail())
    worker.close()
    assert ends_within(grandchild, 5)


def test_kill_does_not_wait_and_close_may_follow(start: Start) -> None:
    worker = start(SERVING + HONEST)
    worker.wait_ready()
    worker.kill()
    assert worker.exit_code(5) == -signal.SIGKILL
    worker.close()
    assert worker.exit_code(0) == -signal.SIGKILL
    worker.kill()


def test_exit_code_of_a_running_process(start: Start) -> None:
    assert start("time.sleep(60)\n").exit_code(0.01) is None


def test_output_is_limited_on_disk(start: Start) -> None:
    flood = """\
from sandbox import restrict
restrict()
try:
    for _ in range(24):
        os.write(1, b"x" * (1 << 20))
except OSError as error:
    say(json.dumps({"error": json.dumps(error.errno), "code": 0}).encode())
hear()
"""
    worker = start(CONNECT + READY + "hear()\n" + flood)
    assert tell(worker) == 27  # EFBIG
    assert (worker.folder / "output").stat().st_size == 16 << 20


def test_sandbox_dies_with_its_oracle(tmp_path: Path) -> None:
    body = "from sandbox import restrict\nrestrict()\n" + CONNECT + READY + "signal.pause()\n"
    oracle = (
        "import sys; from ptxbench.profiler.worker import Command, Worker\n"
        f"worker = Worker(Command([sys.executable, {str(write_program(tmp_path, body))!r}])); worker.wait_ready()\n"
        "print(worker.process.pid, worker.folder, flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", oracle],
        env=os.environ | {"PYTHONPATH": import_path(), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[0])
    assert is_alive(pid)
    process.kill()
    process.communicate()
    assert ends_within(pid, 5)


@pytest.mark.parametrize("by_path", [False, True])
def test_program_that_is_missing_is_an_infrastructure_error_and_leaves_nothing(
    by_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InfrastructureError, match=r"expected to start /no/such/tool .*: .*No such file") as caught:
        Worker(Command(["/no/such/tool"], by_path=by_path))
    assert caught.value.kind == "sandbox_failed"
    assert list(tmp_path.iterdir()) == []


def test_sandbox_command_is_isolated_and_can_stand_behind_a_tool() -> None:
    alone = sandbox_command()
    assert alone.argv[1:3] == ["-P", "-s"]
    assert not alone.by_path
    behind = sandbox_command("--under-tool", prefix=["ncu", "--csv"])
    assert list(behind.argv) == ["ncu", "--csv", *alone.argv, "--under-tool"]
    assert behind.by_path


def test_folders_are_where_code_may_be_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parent_folder() is None
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path))
    flags = type("Flags", (), {"f_flag": os.ST_NOEXEC})
    monkeypatch.setattr(os, "statvfs", lambda path: flags)
    assert parent_folder() == tmp_path / "sandboxes"
    assert (tmp_path / "sandboxes").is_dir()


def test_a_candidate_finds_nothing_of_ours_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(module.__file__).parents[2]), "/else"]))
    assert minimal_environment(tmp_path)["PYTHONPATH"] == "/else"
    monkeypatch.setenv("PYTHONPATH", str(Path(module.__file__).parents[2]))
    assert "PYTHONPATH" not in minimal_environment(tmp_path)


def test_import_path_finds_this_package_first(monkeypatch: pytest.MonkeyPatch) -> None:
    package_parent = str(Path(module.__file__).parents[2])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert import_path() == package_parent
    monkeypatch.setenv("PYTHONPATH", "/else")
    assert import_path() == f"{package_parent}{os.pathsep}/else"


ORACLE = """
import socket, sys
from pathlib import Path
from ptxbench.profiler.endings import end_with
from ptxbench.profiler.worker import Command, Worker

end_with(int(sys.argv[1]))
# A tool: it does not end with its starter, and starts a process of its own that ignores the channel. Its many files
# take a while to remove, during which the killed worker's end is noticed here too.
script = "sleep 100 & echo $! > child; for i in $(seq 5000); do : > $i; done; mv child grandchild; wait"
worker = Worker(Command(["sh", "-c", script]), environment={"PATH": "/usr/bin:/bin"})
print(worker.process.pid, worker.work, flush=True)
worker.wait_ready(100)
"""


def test_what_a_killed_run_had_asked_for_ends_with_it() -> None:
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-c", ORACLE, str(theirs.fileno())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        env=os.environ | {"PYTHONPATH": import_path()},
        text=True,
    ) as oracle:
        theirs.close()
        assert oracle.stdout is not None
        pid, folder = oracle.stdout.readline().split()
        note = Path(folder) / "grandchild"
        deadline = time.monotonic() + 20
        while not note.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        grandchild = int(note.read_text())
        assert is_alive(grandchild)
        assert oracle.poll() is None
        ours.close()
        assert oracle.wait(10) == 1
    assert ends_within(int(pid), 10)
    assert ends_within(grandchild, 10)
    assert not Path(folder).parent.exists()
