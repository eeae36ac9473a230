"""An external coding agent: a program that finds the conversation in a folder and writes ``kernel.cu`` there."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.models.client import ModelError, Request
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
from ptxbench.models.plain_file import NotPlainError, read_plain
from ptxbench.models.program import Ran, run_program
from ptxbench.models.secrets import Scrubber
from ptxbench.records import Reply

KERNEL, REPLY = "kernel.cu", "reply.json"
MAX_TEXT_CHARS = 20_000
"""Of the agent's output that is kept: its end."""
MAX_SOURCE_BYTES = 4 << 20
MAX_REPLY_BYTES = 64 << 20
_LAST_WORDS_CHARS = 600
_MARGIN_BYTES = 16_384
"""Kept beyond what is shown, so that a key at the cut is seen whole before it is made."""


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
        _empty(folder, self._entry.name)
        try:
            _fill(folder, request, before)
            ran = self._run(folder, request)
        except OSError as error:
            raise ModelError(
                "unavailable", self._scrub(f"{self._entry.name}: the agent cannot be run: {error}")
            ) from None
        _check_kept(folder, self._entry.name)
        words = self._scrub.end(_text(ran.output), MAX_TEXT_CHARS)
        source, problem = _kernel(folder, before)
        if source is None and ran.code != 0:
            raise self._failed(ran, problem, self._scrub.end(_text(ran.errors), _LAST_WORDS_CHARS) or words)
        if source is not None and self._scrub.knows_one_in(source):
            holds = "holds the value of an environment variable that is named like a credential; it is not kept"
            raise ModelError("malformed_response", f"{self._entry.name}: {KERNEL} {holds}")
        text = "\n".join(part for part in (words.rstrip(), problem) if part)
        return self._reply(folder, text, source, ran.code, time.monotonic() - started)

    def close(self) -> None:
        """End the programs that run."""
        self._closing.set()

    def _run(self, folder: Path, request: Request) -> Ran:
        return run_program(
            self._argv,
            folder,
            seconds=self._entry.timeout_s,
            keep=(4 * MAX_TEXT_CHARS + _MARGIN_BYTES, 4 * _LAST_WORDS_CHARS + _MARGIN_BYTES),
            cancelled=lambda: self._closing.is_set() or request.cancelled(),
        )

    def _failed(self, ran: Ran, problem: str, last_words: str) -> ModelError:
        kind, how = "server_error", f"exit code {ran.code}, no {KERNEL}"
        if ran.code is None:
            kind, how = "timeout", f"no {KERNEL} within {self._entry.timeout_s:g} s"
        said = " ".join(last_words[-_LAST_WORDS_CHARS:].split())
        return ModelError(kind, f"{self._entry.name}: {how}{problem}; its last words: {said}")

    def _reply(self, folder: Path, text: str, source: str | None, code: int | None, latency_s: float) -> Reply:
        ended: Literal["stop", "output_limit", "unknown"] = "stop" if code == 0 else "unknown"
        stated = _stated(folder)
        reply = stated.reply(prices=self._entry.prices, model=self._entry.name, latency_s=latency_s)
        return Reply.model_validate(
            dict(reply)
            | {
                "text": self._scrub(stated.text) or text,
                "reasoning": self._scrub(reply.reasoning),
                "model": self._scrub(reply.model),
                "response_id": self._scrub(reply.response_id),
                "source": source,
                "ended": "output_limit" if code is None else ended,
                "finish_reason": "time limit" if code is None else f"exit code {code}",
            }
        )


def _empty(folder: Path, name: str) -> None:
    """Remove what an attempt before this one left: it would be taken for an answer. Raises ModelError."""
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
            return
        # Package caches write-protect their folders.
        folder.chmod(0o700)
        for root, folders, _ in os.walk(folder):
            for inner in folders:
                path = Path(root, inner)
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)
    except OSError as error:
        raise ModelError(
            "server_error", f"{name}: the folder of an earlier attempt cannot be removed: {error}"
        ) from None


def _fill(folder: Path, request: Request, kernel: str | None) -> None:
    conversation = {"label": request.label, "messages": conversation_json(request.messages)}
    write_whole(folder / "conversation.json", to_json(conversation))
    write_whole(folder / "prompt.md", conversation_text(request.messages).encode("utf-8", "surrogatepass"))
    if kernel is not None:
        write_whole(folder / KERNEL, kernel.encode("utf-8", "surrogatepass"))


def _check_kept(folder: Path, name: str) -> None:
    """Raises ModelError where the agent put something else in its folder's place. One that is gone holds no kernel."""
    try:
        kept = stat.S_ISDIR(folder.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError:
        kept = False
    if not kept:
        raise ModelError("server_error", f"{name}: the agent replaced its working folder by something else")


def _kernel(folder: Path, before: str | None) -> tuple[str | None, str]:
    """The kernel that the agent wrote, or None and what is wrong with its file, if it touched that."""
    try:
        source = read_plain(folder / KERNEL, MAX_SOURCE_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None, ""
    except NotPlainError as error:
        return None, f" ({KERNEL}: {error})"
    except UnicodeDecodeError:
        return None, " (kernel.cu is not UTF-8 text)"
    except OSError as error:
        return None, f" (kernel.cu cannot be read: {error.strerror})"
    return (None, "") if source == before or not source.strip() else (source, "")


def _stated(folder: Path) -> ReplyFile:
    """What the agent says of its call in ``reply.json``, if it does: tokens, cost, model, reasoning."""
    try:
        return read_reply_file(read_plain(folder / REPLY, MAX_REPLY_BYTES))
    except FileNotFoundError:
        return ReplyFile(text="")
    except (OSError, ValueError) as error:
        raise ModelError("malformed_response", f"{REPLY} of the agent: {error}") from None


def _text(end: bytes) -> str:
    return end.decode("utf-8", "replace")
