"""Requests and replies as files in a folder: for clusters without a network, and for answers that take days."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.models.client import CANCELLED, CONTEXT_EXHAUSTED, ModelError, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.models.handover import (
    ReplyFile,
    conversation_json,
    conversation_text,
    file_name,
    read_reply_file,
    to_json,
)
from ptxbench.models.plain_file import NotPlainError, check_plain, read_plain
from ptxbench.models.secrets import MAX_MESSAGE_CHARS
from ptxbench.records import Reply, prompt_sha256

POLL_S = 1.0
"""How often the folder is looked at."""
SETTLED_S = 2.0
"""A reply that somebody writes in place counts as whole once it has not changed for so long."""
_LOOK_S = 0.1
_PASSING_ERRORS = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})
"""What a network file system says when its server is away for a moment."""
_OWN_ERRORS = frozenset({errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG})
"""What only the files of this request can be the reason of."""
MAX_REPLY_BYTES = 64 << 20

_INSTRUCTIONS = """\
<!--
Request {label}

Answer the last message below, as the assistant. Put the whole answer into one of
  replies/{name}.md or .txt   the text as it is
  replies/{name}.json         {{"text": "...", "prompt_sha256": "{sha256}"}}, with usage and more if known
Write under another name first and rename, or write at once: a file is read when it has not changed for {settled:g} s.
-->

"""


class ExchangeClient:
    """Waits for each reply until somebody puts it there. Raises InputError where the folder cannot be one."""

    def __init__(self, entry: ModelEntry) -> None:
        assert entry.folder is not None
        self._entry = entry
        self._folder = Path(entry.folder)
        self._closed = False
        if self._folder.exists() and not self._folder.is_dir():
            raise InputError(f"model {entry.name}: expected a folder for the exchange, found a file: {self._folder}")

    def __repr__(self) -> str:
        return f"ExchangeClient({self._entry.name})"

    def settings(self) -> Mapping[str, JsonValue]:
        """The provider; what answers says in its replies with which settings."""
        return {"provider": "exchange"} | ({"model": self._entry.model} if self._entry.model else {})

    def complete(self, request: Request) -> Reply:
        """The reply to this very conversation, which may be there already."""
        started = time.monotonic()
        sha256 = prompt_sha256(request.messages)
        try:
            inbox = _Inbox(self._folder, file_name(request.label), sha256)
            self._ask(inbox, request, sha256)
            found = self._wait(inbox, request, started)
        except OSError as error:
            place = f"{self._entry.name}: expected a folder that can be read and written, found: {error}"
            raise ModelError(_kind(error), place) from None
        if found.finish_reason == CONTEXT_EXHAUSTED:
            raise ModelError(
                CONTEXT_EXHAUSTED, f"{self._entry.name}: {found.text[:MAX_MESSAGE_CHARS] or 'said by the reply'}"
            )
        return found.reply(prices=self._entry.prices, model=self._entry.name, latency_s=time.monotonic() - started)

    def close(self) -> None:
        """Give up what waits."""
        self._closed = True

    def _ask(self, inbox: _Inbox, request: Request, sha256: str) -> None:
        """Write the request, unless it is there from an earlier session."""
        if inbox.asked():
            return
        note = _INSTRUCTIONS.format(label=request.label, name=inbox.name, sha256=sha256, settled=SETTLED_S)
        text = note + conversation_text(request.messages)
        with contextlib.suppress(FileExistsError):  # something else of that name: the wait says so
            inbox.replies.mkdir(parents=True, exist_ok=True)
        write_whole(inbox.request.with_name(f"{inbox.name}.md"), text.encode("utf-8", "surrogatepass"))
        document = {
            "schema_version": 1,
            "label": request.label,
            "prompt_sha256": sha256,
            "asked_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": dict(self.settings()),
            "older_replies": inbox.present(),
            "messages": conversation_json(request.messages),
        }
        # Last: a request counts as asked when this file is there.
        write_whole(inbox.request, to_json(document))

    def _wait(self, inbox: _Inbox, request: Request, started: float) -> ReplyFile:
        next_look = time.monotonic()
        while True:
            if time.monotonic() >= next_look:
                if (found := inbox.look()) is not None:
                    return found
                next_look = time.monotonic() + POLL_S
            if self._closed or request.cancelled():
                raise ModelError(
                    CANCELLED, f"still waiting for {inbox.wanted}{inbox.refusal}; a later run goes on waiting"
                )
            if time.monotonic() - started > self._entry.timeout_s:
                raise ModelError("timeout", f"no {inbox.wanted} within {self._entry.timeout_s:g} s{inbox.refusal}")
            time.sleep(_LOOK_S)


def _kind(error: OSError) -> str:
    if error.errno in _PASSING_ERRORS:
        return "connection"
    return "server_error" if error.errno in _OWN_ERRORS else "unavailable"


class _Seen(NamedTuple):
    """A file as it was when looked at, and since when it has been so."""

    state: tuple[int, int, int]
    since: float


class _Inbox:
    """The files of one request."""

    def __init__(self, folder: Path, name: str, sha256: str) -> None:
        self.name = name
        self.request = folder / "requests" / f"{name}.json"
        self.replies = folder / "replies"
        self.wanted = f"replies/{name}.json, .md or .txt"
        self.refusal = ""
        """Why a file that is there was not taken, for error messages."""
        self._sha256 = sha256
        self._json = self.replies / f"{name}.json"
        self._plain = [self.replies / f"{name}{suffix}" for suffix in (".md", ".txt")]
        self._seen: dict[Path, _Seen] = {}
        self._older: dict[str, str] | None = None

    def asked(self) -> bool:
        """Whether the very same request was written before."""
        document = self._request()
        return document.get("prompt_sha256") == self._sha256

    def present(self) -> dict[str, str]:
        """Replies that are there before the request is: without a hash, they answer another one. Name to hash."""
        found = {}
        for path in (self._json, *self._plain):
            with contextlib.suppress(OSError, NotPlainError):
                found[path.name] = _hash(read_plain(path, MAX_REPLY_BYTES))
        return found

    def look(self) -> ReplyFile | None:
        """The reply, if it is there, whole, and to this request."""
        if os.path.lexists(self.replies) and not self.replies.is_dir():
            self._refuse(self.replies, "expected a folder, found something else")
            return None
        for path in (self._json, *self._plain):
            try:
                found = self._take(path)
            except FileNotFoundError:
                self._seen.pop(path, None)
                continue  # not there, or taken away again; whoever did it will bring another
            except OSError as error:
                if error.errno in _PASSING_ERRORS:
                    raise
                self._refuse(path, f"expected a file that can be read, found: {error.strerror}")
                continue
            if found is not None:
                with contextlib.suppress(OSError):
                    _error_file(path).unlink(missing_ok=True)
                return found
        return None

    def _take(self, path: Path) -> ReplyFile | None:
        """What the file says, if that can be taken. Raises OSError."""
        try:
            settled = time.monotonic() - self._state(path).since >= SETTLED_S
        except NotPlainError as error:
            self._refuse(path, str(error))
            return None
        if path is not self._json and not settled:
            return None
        try:
            content = read_plain(path, MAX_REPLY_BYTES)
            return self._read_json(content) if path is self._json else self._read_text(path, content)
        except ValueError as error:
            if settled:
                self._refuse(path, str(error))
            return None

    def _read_json(self, content: bytes) -> ReplyFile:
        """Half a JSON object is not one: what can be read is whole. Raises ValueError."""
        found = read_reply_file(content)
        if found.prompt_sha256 is None:
            self._expect_new(self._json, content)
        elif found.prompt_sha256 != self._sha256:
            other = found.prompt_sha256
            raise ValueError(f"expected prompt_sha256 {self._sha256}, found that of another request: {other}")
        return found

    def _read_text(self, path: Path, content: bytes) -> ReplyFile | None:
        """The text; None where the file is still empty. Raises ValueError."""
        if not content.strip():
            return None
        self._expect_new(path, content)
        try:
            return ReplyFile(text=content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(f"expected UTF-8 text, found byte {error.start} that is not") from None

    def _expect_new(self, path: Path, content: bytes) -> None:
        """Raises ValueError for a reply without a hash that answers another request."""
        if self._older is None:
            older = self._request().get("older_replies")
            self._older = {str(name): str(value) for name, value in older.items()} if isinstance(older, dict) else {}
        if self._older.get(path.name) == _hash(content):
            raise ValueError("expected an answer to this request; found a file that was there before it was asked")

    def _state(self, path: Path) -> _Seen:
        """How long the file has been as it is now. Raises NotPlainError, OSError."""
        status = path.lstat()
        check_plain(status, MAX_REPLY_BYTES)
        state = (status.st_size, status.st_mtime_ns, status.st_ino)
        known = self._seen.get(path)
        if known is None or known.state != state:
            known = self._seen[path] = _Seen(state, time.monotonic())
        return known

    def _refuse(self, path: Path, problem: str) -> None:
        """Say so beside the file, once per content, and go on waiting for a better one."""
        refusal = f"; {path.name} was refused: {problem}"
        if refusal != self.refusal:
            self.refusal = refusal
            text = f"{path.name} was not taken as the reply to {self.name}: {problem}.\nReplace the file to answer.\n"
            with contextlib.suppress(OSError):  # the error of the turn says it too
                write_whole(_error_file(path), text.encode("utf-8", "replace"))

    def _request(self) -> dict[str, object]:
        try:
            document = json.loads(read_plain(self.request, MAX_REPLY_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}


def _error_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.refused.txt")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
