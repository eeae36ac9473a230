"""An external coding agent: a program that finds the conversation in a folder and writes ``kernel.cu`` there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Literal

from pydantic import JsonValue

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.models.client import CANCELLED, ModelError, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.models.handover import (
    ReplyFile,
    conversation_json,
    conversation_text,
    file_name,
    previous_kernel,
    read_reply_file,
    to_json,
)
from ptxbench.models.secrets import Scrubber
from ptxbench.records import Reply

KERNEL, REPLY = "kernel.cu", "reply.json"
MAX_TEXT_CHARS = 20_000
"""Of the agent's output that is kept: its end."""
MAX_SOURCE_BYTES = 4 << 20
_LAST_WORDS_CHARS = 600
_MARGIN_BYTES = 16_384
_POLL_S = 0.2
_GRACE_S = 2.0
"""Between asking a process group to end and killing it."""


class CommandClient:
    """Runs one program per call, in ``folder/LABEL``. Raises InputError where there is no such program."""

    def __init__(self, entry: ModelEntry, folder: Path) -> None:
        assert entry.command is not None
        self._entry = entry
        self._folder = folder
        program = shutil.which(entry.command[0])
        if program is None:
            raise InputError(
                f"model {entry.name}: expected a program called {entry.command[0]!r}; found none that can be run. "
                "Install it, or give its whole path"
            )
        self._argv = (program, *entry.command[1:])
        self._scrub = Scrubber()
        self._closing = threading.Event()

    def __repr__(self) -> str:
        return f"CommandClient({self._entry.name})"

    def settings(self) -> Mapping[str, JsonValue]:
        """The command, its program without the folder, which differs between machines."""
        program, *arguments = self._argv
        shown: list[JsonValue] = [Path(program).name, *map(self._scrub, arguments)]
        return {"provider": "command", "command": shown, "timeout_s": self._entry.timeout_s}

    def complete(self, request: Request) -> Reply:
        """What the program said and wrote. At the time limit, what it had written by then."""
        started = time.monotonic()
        folder = self._folder / file_name(request.label)
        before = previous_kernel(request.messages)
        try:
            _prepare(folder, request, before)
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                code = self._run(folder, request, output, errors)
                words = self._scrub.end(_tail(output, MAX_TEXT_CHARS), MAX_TEXT_CHARS)
                last_words = self._scrub.end(_tail(errors, _LAST_WORDS_CHARS) or words, _LAST_WORDS_CHARS)
        except OSError as error:
            raise ModelError(
                "unavailable", self._scrub(f"{self._entry.name}: the agent cannot be run: {error}")
            ) from None
        source, problem = _kernel(folder, before)
        if source is None and code != 0:
            kind = "timeout" if code is None else "server_error"
            how = (
                f"no kernel.cu within {self._entry.timeout_s:g} s"
                if code is None
                else f"exit code {code}, no kernel.cu"
            )
            said = " ".join(last_words.split())
            raise ModelError(kind, f"{self._entry.name}: {how}{problem}; its last words: {said}")
        text = "\n".join(part for part in (words.rstrip(), problem) if part)
        return self._reply(folder, text, source, code, time.monotonic() - started)

    def close(self) -> None:
        """End the programs that run."""
        self._closing.set()

    def _run(self, folder: Path, request: Request, output: IO[bytes], errors: IO[bytes]) -> int | None:
        """The program's exit code; None where the time limit ended it. Raises ModelError ``cancelled``."""
        # The environment is inherited whole: an agent has keys and settings of its own there.
        process = subprocess.Popen(
            self._argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            return _wait(process, self._entry.timeout_s, lambda: self._closing.is_set() or request.cancelled())
        finally:
            _end_group(process)

    def _reply(self, folder: Path, text: str, source: str | None, code: int | None, latency_s: float) -> Reply:
        ended: Literal["stop", "output_limit", "unknown"] = "stop" if code == 0 else "unknown"
        stated = _stated(folder)
        reply = stated.reply(prices=self._entry.prices, model=self._entry.name, latency_s=latency_s)
        return reply.model_copy(
            update={
                "text": self._scrub(stated.text) or text,
                "reasoning": self._scrub(reply.reasoning),
                "model": self._scrub(reply.model),
                "response_id": self._scrub(reply.response_id),
                "source": source,
                "ended": "output_limit" if code is None else ended,
                "finish_reason": "time limit" if code is None else f"exit code {code}",
            }
        )


def _prepare(folder: Path, request: Request, kernel: str | None) -> None:
    """A fresh folder: what an attempt before this one left would be taken for an answer."""
    if folder.exists():
        shutil.rmtree(folder)
    conversation = {"label": request.label, "messages": conversation_json(request.messages)}
    write_whole(folder / "conversation.json", to_json(conversation))
    write_whole(folder / "prompt.md", conversation_text(request.messages).encode("utf-8", "surrogatepass"))
    if kernel is not None:
        write_whole(folder / KERNEL, kernel.encode("utf-8", "surrogatepass"))


def _wait(process: subprocess.Popen[bytes], seconds: float, cancelled: Callable[[], bool]) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        if cancelled():
            raise ModelError(CANCELLED, "the agent was told to stop")
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(_POLL_S, left))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started; a group outlives its leader."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kernel(folder: Path, before: str | None) -> tuple[str | None, str]:
    """The kernel that the agent wrote, or None and what is wrong with its file, if it touched that."""
    path = folder / KERNEL
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None, " (kernel.cu is not a regular file)"
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return None, f" (kernel.cu is larger than {MAX_SOURCE_BYTES} bytes)"
        source = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None, ""
    except UnicodeDecodeError:
        return None, " (kernel.cu is not UTF-8 text)"
    except OSError as error:
        return None, f" (kernel.cu cannot be read: {error.strerror})"
    return (None, "") if source == before or not source.strip() else (source, "")


def _stated(folder: Path) -> ReplyFile:
    """What the agent says of its call in ``reply.json``, if it does: tokens, cost, model, reasoning."""
    try:
        return read_reply_file((folder / REPLY).read_bytes())
    except FileNotFoundError:
        return ReplyFile(text="")
    except (OSError, ValueError) as error:
        raise ModelError("malformed_response", f"{REPLY} of the agent: {error}") from None


def _tail(file: IO[bytes], chars: int) -> str:
    """More than the last ``chars`` characters, so that a key at the cut is seen whole before it is made."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4 * chars - _MARGIN_BYTES))
    return file.read().decode("utf-8", "replace")
