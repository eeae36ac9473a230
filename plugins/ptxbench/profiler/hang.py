"""Where on the device the threads of a call that does not end are: cuda-gdb, attached to its sandbox.

The sandbox is hostile: cuda-gdb reads it and its object files, but runs no script and loads no library that they name,
works in an empty folder with a minimal environment, and has a limit on time and output. What cannot be told has a
reason, and is no error of the evaluation.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ptxbench.profiler import gdb_text
from ptxbench.profiler.endings import LIVING, remove_folder
from ptxbench.profiler.tools import find_tool
from ptxbench.records import NO_KERNEL_RAN, WaitingPlace
from ptxbench.records.texts import placeless

LOOK_TIMEOUT_S = 15.0
"""For everything. Attaching, listing 25,600 threads and detaching took 1.2 s (H200)."""
END_TIMEOUT_S = 3.0
"""For detaching and ending in good order, after which the debugger's process group is killed."""
MAX_OUTPUT_BYTES = 4 << 20
"""Of one answer: 40,000 rows of threads. What goes beyond it is read and dropped."""
MAX_PLACES = 32
"""Addresses that are looked up. Warps that poll are spread over the instructions of their loop."""
MAX_REASON_CHARS = 200
_READ_BYTES = 1 << 16
_KEPT_ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
# GDB manual, "Auto-loading": scripts, init files, JIT readers and thread libraries that the process names. libthread_db
# is then taken from the system's own folders only.
_SETTINGS = (
    "set auto-load off",
    "set libthread-db-search-path $sdir",
    "set debuginfod enabled off",
    "set history save off",
    "set confirm off",
    "set pagination off",
    "set width 0",
    "set print demangle off",
)
_PROMPT = re.compile(r"^(?:\((?:cuda-)?gdb\) ?)+")
_TELLING = ("ptrace:", "not permitted", "not possible", "error", "unable", "cannot", "failed")


class Waiting(NamedTuple):
    """Fields of ``RunEvidence``: at most one of them says something."""

    places: tuple[WaitingPlace, ...] = ()
    unknown: str = ""


def look(pid: int, shared: Path) -> Waiting:
    """Where the threads of the process's current kernel are. The process is stopped for it, then goes on.

    ``shared`` is the process's temporary folder, through which debugger and driver find each other.
    """
    tool = find_tool("cuda-gdb")
    if tool is None:
        return Waiting(unknown="cuda-gdb was not found on PATH or in CUDA_HOME")
    try:
        with _attached(tool, pid, shared) as debugger:
            return _examine(debugger, pid)
    except TimeoutError:
        return Waiting(unknown=f"cuda-gdb did not answer within {LOOK_TIMEOUT_S:g} s")
    except (OSError, EOFError) as error:
        return unknown(f"cuda-gdb ended early: {error}")


def unknown(reason: str) -> Waiting:
    """No place, and why. Reasons are the words of others: bounded, and without folders of this machine."""
    return Waiting(unknown=placeless(reason)[:MAX_REASON_CHARS])


class _Debugger:
    """A conversation with a running gdb over its standard streams."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, deadline: float) -> None:
        self._process = process
        self._folder = folder
        self._deadline = deadline

    def ask(self, *commands: str) -> str:
        """What the commands print. Raises TimeoutError, EOFError where it ends, OSError."""
        assert self._process.stdin is not None
        mark = secrets.token_hex(8)
        # Written in octal, its first character stands in the output alone, even if commands are echoed.
        lines = [*commands, rf"echo \n\{ord(mark[0]):03o}{mark[1:]}\n"]
        # A debugger that has ended has usually said why, which is still to be read.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._process.stdin.flush()
        return self._read_to(mark.encode())

    def _read_to(self, mark: bytes) -> str:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        kept, recent = bytearray(), b""
        while mark not in recent:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0 or not select.select([output], [], [], left_s)[0]:
                raise TimeoutError
            received = os.read(output, _READ_BYTES)
            if not received:
                raise EOFError(_reason(kept.decode("utf-8", "replace")))
            kept += received[: max(0, MAX_OUTPUT_BYTES - len(kept))]
            recent = recent[-len(mark) :] + received
        return kept.decode("utf-8", "replace").partition(mark.decode())[0]

    @property
    def own_pid(self) -> int:
        """The debugger's process."""
        return self._process.pid

    def kill(self) -> None:
        """End the debugger and what it started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def remove_folders(self) -> None:
        """Remove its folder, whatever it holds."""
        remove_folder(self._folder)

    def close(self) -> None:
        """Let go of the process, and end whatever is left of the debugger."""
        self._deadline = time.monotonic() + END_TIMEOUT_S
        with contextlib.suppress(TimeoutError, EOFError, OSError):
            self.ask("detach")
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def _attached(tool: str, pid: int, shared: Path) -> Iterator[_Debugger]:
    settings = [word for setting in _SETTINGS for word in ("-iex", setting)]
    folder = Path(tempfile.mkdtemp(prefix="ptxbench-gdb-"))
    try:
        process = subprocess.Popen(
            [tool, "-q", "-nx", *settings, "-p", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(tool, folder, shared),
            start_new_session=True,
        )
    except OSError:
        remove_folder(folder)
        raise
    debugger = _Debugger(process, folder, time.monotonic() + LOOK_TIMEOUT_S)
    LIVING.add(debugger)
    try:
        yield debugger
    finally:
        debugger.close()
        debugger.remove_folders()
        LIVING.discard(debugger)


def _environment(tool: str, folder: Path, shared: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return kept | {
        "PATH": os.pathsep.join((str(Path(tool).parent), os.defpath)),
        "HOME": str(folder),
        # CUDA-GDB manual, "Temporary Directory": attaching fails unless it is the application's. Links that a candidate
        # left there lead the debugger no further than the candidate's own process, of the same user, could go.
        "TMPDIR": str(shared),
        "TERM": "dumb",
        "LC_ALL": "C",
    }


def _examine(debugger: _Debugger, pid: int) -> Waiting:
    said = debugger.ask("info inferiors")
    if not re.search(rf"^[ *]*1[ \t]+process {pid}\b", said, re.MULTILINE):
        return unknown(f"cuda-gdb could not attach: {_reason(said)}")
    kernels = debugger.ask("info cuda kernels")
    shape = gdb_text.block_shape(kernels)
    if shape is None:
        # Without a device in sight it has attached to the host's half of the process only.
        if "sm_" in debugger.ask("info cuda devices"):
            return Waiting(unknown=NO_KERNEL_RAN)
        return unknown(f"cuda-gdb saw no device: {_reason(said + kernels)}")
    rows = gdb_text.spans(debugger.ask("info cuda threads"))
    addresses = gdb_text.busiest(rows, MAX_PLACES)
    known = gdb_text.symbols(debugger.ask(*_flat(map(gdb_text.questions, addresses))))
    places = gdb_text.places(rows, known, shape)
    return Waiting(places) if places else Waiting(unknown="cuda-gdb named no instruction of the running kernel")


def _flat(groups: Iterable[tuple[str, ...]]) -> list[str]:
    return [command for group in groups for command in group]


def _reason(text: str) -> str:
    """The line that most likely says what was wrong."""
    said = (_PROMPT.sub("", line).strip() for line in text.splitlines())
    lines = [line for line in said if line]
    telling = (line for line in lines if any(word in line.lower() for word in _TELLING))
    return next(telling, lines[-1] if lines else "it said nothing")
