"""Running the compiler's steps: one deadline and one set of limits for all of them, whole process groups killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

MAX_OUTPUT_BYTES = 1 << 20
"""Output of one step that is read back, its start and its end; a template error can print hundreds of megabytes."""

_CPU_SLACK = 2.0
"""CPU seconds allowed per second of wall time limit: only a step that outlives its parent ever meets it."""

# A shell sets the limits, because code between fork and exec is unsafe in a process with threads. Limits that the
# system already holds lower stay as they are. ulimit -f counts blocks of 512 bytes, -v counts KiB.
_LIMITED = """
ulimit -c 0
ulimit -v "$1" 2>/dev/null
ulimit -f "$2" 2>/dev/null
ulimit -t "$3" 2>/dev/null
shift 3
exec "$@"
"""


class Limits(NamedTuple):
    """What one build may use. ``seconds`` is wall time of the whole build; the others hold for each process."""

    seconds: float = 180.0
    memory_bytes: int = 8 << 30
    file_bytes: int = 256 << 20


class StepResult(NamedTuple):
    """How one step ended. ``returncode`` is negative for a signal, as in ``subprocess``."""

    tool: str
    returncode: int
    output: str

    @property
    def ok(self) -> bool:
        """Whether the step succeeded."""
        return self.returncode == 0


class Session:
    """The processes of one build. Leaving the ``with`` block kills whatever still runs.

    The time limit counts from ``started`` (``time.monotonic()``), by default from now.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], limits: Limits, started: float | None = None) -> None:
        self._folder = folder
        self._env = dict(env)
        self.limits = limits
        self._deadline = (time.monotonic() if started is None else started) + limits.seconds
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._cancelled = False
        self._count = 0
        self.timed_out_tool: str | None = None
        """The tool that was running when the time limit struck."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Kills every running step and refuses further ones: they return as killed."""
        with self._lock:
            self._cancelled = True
            for pid in self._running:
                _kill_group(pid)

    def run(self, argv: Sequence[str], *, whole: bool = False) -> StepResult:
        """Runs one step in the session's folder and waits for it; ``whole`` reads all of its output.

        Raises OSError when nothing can be started.
        """
        tool = Path(argv[0]).name
        with self._lock:
            self._count += 1
            log = self._folder / f"step{self._count}.log"
        with log.open("wb") as sink:
            with self._lock:
                if self._cancelled:
                    return StepResult(tool, -signal.SIGKILL, "")
                process = subprocess.Popen(
                    self._limited(argv),
                    cwd=self._folder,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process.pid)
            returncode = self._wait(process, tool)
        return StepResult(tool, returncode, _read(log, None if whole else MAX_OUTPUT_BYTES))

    def _limited(self, argv: Sequence[str]) -> list[str]:
        numbers = (
            self.limits.memory_bytes >> 10,
            self.limits.file_bytes >> 9,
            max(1, int(self.limits.seconds * _CPU_SLACK)),
        )
        return ["/bin/sh", "-c", _LIMITED, "sh", *map(str, numbers), *argv]

    def _wait(self, process: subprocess.Popen[bytes], tool: str) -> int:
        try:
            return process.wait(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.timed_out_tool = tool
            _kill_group(process.pid)
            return process.wait()
        finally:
            # The leader may be gone while its children live on; a group outlives its leader.
            _kill_group(process.pid)
            with self._lock:
                self._running.discard(process.pid)


def _read(log: Path, limit: int | None) -> str:
    """The text of a file; of a longer one, the first and the last half of ``limit`` bytes."""
    with log.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        if limit is None or size <= limit:
            content = source.read()
        else:
            content = source.read(limit // 2)
            source.seek(-(limit // 2), os.SEEK_END)
            content += source.read()
    return content.decode("utf-8", "replace")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
