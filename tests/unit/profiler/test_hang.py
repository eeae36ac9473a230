"""The conversation with the debugger: a stand-in speaks for cuda-gdb, which only a machine with a GPU has a use for."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxbench.profiler import hang, tools
from ptxbench.profiler.endings import LIVING
from ptxbench.records import NO_KERNEL_RAN
from tests.unit.profiler.samples import TOOLS

BASE = 0x7F5C5F7A0000
DEBUGGER = r"""#!PYTHON
import json, os, re, sys, time
pid = sys.argv[sys.argv.index("-p") + 1]
state = {"attached": True, "kernels": "cuda_gdb_kernels_h200.txt", "devices": "sm_90"}
told = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.listdir("."), "commands": [], "pid": os.getpid()}

def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def sample(name):
    return open(TOOLS + "/" + name).read()

def answer(command):
    told["commands"].append(command)
    open(REPORT, "w").write(json.dumps(told))
    words = command.split()
    if words[0] == "echo":
        text = command[5:].replace("\\n", "\n")
        return re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), text)
    if command == "info inferiors":
        shown = "process " + pid if state["attached"] else "<null>"
        return f"  Num  Description  Connection\n* 1    {shown}     1 (native)   python3\n"
    if command == "info cuda kernels":
        return sample(state["kernels"]) if state["kernels"] else "No CUDA kernels.\n"
    if command == "info cuda devices":
        return state["devices"] + "\n"
    if command == "info cuda threads":
        return sample("cuda_gdb_threads_h200.txt")
    if words[0] == "x/i":
        at = int(words[1], 16)
        return f"   {at:#x} <_Z5waitsPmi+{at - BASE}>:\tBRA 0x7f5c5f7a0230\n"
    if words[:2] == ["info", "symbol"]:
        return f"_Z5waitsPmi + {int(words[2], 16) - BASE} in section .text._Z5waitsPmi\n"
    return ""

say("[New LWP 6508]\n")
BODY
for line in sys.stdin:
    say("(cuda-gdb) " + answer(line.rstrip("\n")))
"""

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a stand-in the cuda-gdb on PATH; ``body`` runs before it listens. Returns the file of what it was told."""
    scratch, told = tmp_path / "scratch", tmp_path / "told.json"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(hang, "END_TIMEOUT_S", 0.5)

    def install_program(body: str = "") -> Path:
        program = tmp_path / "bin" / "cuda-gdb"
        program.parent.mkdir()
        text = DEBUGGER.replace("PYTHON", sys.executable).replace("BODY", body).replace("BASE", str(BASE))
        program.write_text(text.replace("REPORT", repr(str(told))).replace("TOOLS", repr(str(TOOLS))))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return told

    return install_program


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    scratch = tmp_path / "scratch"
    assert not scratch.exists() or list(scratch.iterdir()) == []


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The temporary folder of the process that is looked at."""
    folder = tmp_path / "sandbox"
    folder.mkdir()
    return folder


def test_places_with_the_most_threads_come_first(install: Install, shared: Path) -> None:
    install("")
    found = hang.look(os.getpid(), shared)
    assert found.unknown == ""
    assert [(place.offset, place.threads, place.blocks) for place in found.places] == [
        (720, 480, 5),
        (384, 64, 2),
        (368, 32, 1),
        (400, 32, 1),
        (432, 32, 1),
    ]
    assert {(place.kernel, place.instruction) for place in found.places} == {("_Z5waitsPmi", "BRA 0x7f5c5f7a0230")}


def test_places_are_bounded(install: Install, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("")
    monkeypatch.setattr(hang, "MAX_PLACES", 2)
    assert [place.offset for place in hang.look(os.getpid(), shared).places] == [720, 384]


def test_the_debugger_takes_nothing_from_the_process(
    install: Install, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = install("")
    for name, value in (("A_SECRET", "x"), ("PYTHONPATH", "/y"), ("CUDA_VISIBLE_DEVICES", "3")):
        monkeypatch.setenv(name, value)
    hang.look(os.getpid(), shared)
    told = json.loads(report.read_text())
    assert "-nx" in told["argv"]
    assert told["argv"][told["argv"].index("set auto-load off") - 1] == "-iex"
    assert told["argv"][-2:] == ["-p", str(os.getpid())]
    assert told["cwd"] == []
    assert set(told["env"]) - {"LD_LIBRARY_PATH", "LC_CTYPE"} == {
        *("CUDA_VISIBLE_DEVICES", "HOME", "LC_ALL", "PATH", "TERM", "TMPDIR")
    }
    assert told["env"]["TMPDIR"] == str(shared)
    asked = {command.split()[0] for command in told["commands"]}
    assert asked == {"info", "echo", "x/i", "detach"}


def test_a_folder_that_is_nested_without_end_is_removed(install: Install, shared: Path) -> None:
    install('for _ in range(1200):\n    os.mkdir("d"); os.chdir("d")')
    assert hang.look(os.getpid(), shared).places


def test_a_debugger_is_among_what_ends_with_this_process(install: Install, shared: Path) -> None:
    report = install("")
    seen: list[set[Any]] = []
    ask = hang._Debugger.ask

    def noted(self: Any, *commands: str) -> str:
        seen.append({each for each in LIVING if each is self})
        return ask(self, *commands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hang._Debugger, "ask", noted)
        hang.look(os.getpid(), shared)
    assert all(len(found) == 1 for found in seen)
    assert not LIVING & set().union(*seen)
    assert report.exists()


def test_no_debugger(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    monkeypatch.setattr(hang, "find_tool", lambda name: None)
    assert hang.look(os.getpid(), shared) == hang.Waiting(unknown="cuda-gdb was not found on PATH or in CUDA_HOME")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            'state["attached"] = False; say("ptrace: Operation not permitted.\\n")',
            "cuda-gdb could not attach: ptrace: Operation not permitted.",
        ),
        ('state["kernels"] = ""', NO_KERNEL_RAN),
        (
            'state.update(kernels="", devices="No CUDA devices."); say("Attaching not possible.\\n")',
            "cuda-gdb saw no device: Attaching not possible.",
        ),
        ('say("no license\\n"); sys.exit(1)', "cuda-gdb ended early"),
        (
            'state["attached"] = False; say("error while loading /usr/lib/libpython3.so: \'/usr/share/x\'\\n")',
            "could not attach: error while loading libpython3.so: 'x'",
        ),
        ('say("\\n" * 200_000); state["attached"] = False', "could not attach"),
        ('say("a" * 500 + " failed\\n"); state["attached"] = False', "could not attach: aaa"),
    ],
)
def test_what_cannot_be_told_has_a_reason(body: str, reason: str, install: Install, shared: Path) -> None:
    install(body)
    found = hang.look(os.getpid(), shared)
    assert found.places == ()
    assert reason in found.unknown
    assert len(found.unknown) <= hang.MAX_REASON_CHARS


@pytest.mark.parametrize("body", ["time.sleep(60)", 'os.fork() or time.sleep(60)\nwhile True: say("x" * 4096)'])
def test_a_debugger_that_does_not_answer_is_ended(
    body: str, install: Install, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang, "LOOK_TIMEOUT_S", 0.6)
    monkeypatch.setattr(hang, "MAX_OUTPUT_BYTES", 10_000)
    group: list[int] = []
    kill = os.killpg

    def noted(pid: int, number: int) -> None:
        group.append(pid)
        kill(pid, number)

    monkeypatch.setattr(os, "killpg", noted)
    install(body)
    begin = time.monotonic()
    assert hang.look(os.getpid(), shared) == hang.Waiting(unknown="cuda-gdb did not answer within 0.6 s")
    assert time.monotonic() - begin < 20
    (ended,) = set(group)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _lives(ended):
        time.sleep(0.02)
    assert not _lives(ended)


def _lives(group: int) -> bool:
    """Whether the group has a process that is more than an unreaped end."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False


def test_an_answer_beyond_the_limit_is_read_to_its_end(
    install: Install, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang, "MAX_OUTPUT_BYTES", 700)
    install("")
    found = hang.look(os.getpid(), shared)
    assert found.unknown == ""
    assert 0 < sum(place.threads for place in found.places) < 640


@pytest.mark.skipif(tools.find_tool("gdb") is None, reason="needs gdb")
def test_a_real_gdb_attaches_and_lets_go(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options and conversation are gdb's own; one without CUDA shows no device."""
    monkeypatch.setattr(hang, "find_tool", lambda _: tools.find_tool("gdb"))
    process = subprocess.Popen(
        [sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(60)"], stdout=-1
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        found = hang.look(process.pid, shared)
        assert found.places == ()
        assert found.unknown.startswith(("cuda-gdb saw no device: ", "cuda-gdb could not attach: "))
        assert process.poll() is None
        assert "could not attach" in hang.look(2**22 + 1, shared).unknown
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
