"""A real HTTP server on this machine that answers as a language model's would, by a script.

    with LlmServer([rate_limited(), kernel("// first"), context_length("vllm")]) as server:
        ...  # a client with api_base=server.url
    assert server.seen[1].messages[-1] == ("user", "...")

It speaks OpenAI's ``/v1/chat/completions`` and Anthropic's ``/v1/messages``, streamed and not.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.support.llm_script import (
    ANTHROPIC,
    OPENAI,
    Answer,
    Drop,
    Failure,
    Hang,
    Raw,
    Step,
    stream_events,
    whole_body,
)

DIALECTS = {"/v1/chat/completions": OPENAI, "/v1/messages": ANTHROPIC}


class Seen(NamedTuple):
    """A request as it arrived."""

    number: int
    """Counted from 0 in order of arrival."""
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]
    at: float
    """``time.monotonic()``."""

    @property
    def dialect(self) -> str:
        """``openai`` or ``anthropic``."""
        return DIALECTS[self.path]

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Roles and texts of the whole conversation; Anthropic's system text comes first."""
        system = [{"role": "system", "content": self.body["system"]}] if self.body.get("system") else []
        return [(message["role"], _text(message["content"])) for message in [*system, *self.body["messages"]]]

    @property
    def turn(self) -> int:
        """Answers of the model that the conversation holds already: the turn that is asked for."""
        return sum(role == "assistant" for role, _ in self.messages)

    @property
    def key(self) -> str:
        """The credential that came with it."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")


Script = Step | Sequence[Step] | Callable[[Seen], Step]
"""One step for all requests; steps in order of arrival, then 500; or a choice by what was asked."""


class LlmServer:
    """Serves while its ``with`` block runs. ``seen`` stays afterwards."""

    def __init__(self, script: Script) -> None:
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        self._script = script
        self._lock = threading.Lock()
        self._http = _Server(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def root(self) -> str:
        """Address without a path: what litellm's Anthropic provider wants."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        """Root of the OpenAI-compatible API."""
        return f"{self.root}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.drop_connections()
        self._http.server_close()
        self._thread.join(5)

    def step(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[Seen, Step]:
        """Note a request and choose its answer."""
        with self._lock:
            seen = Seen(len(self.seen), path, headers, body, time.monotonic())
            self.seen.append(seen)
        if callable(self._script):
            return seen, self._script(seen)
        if not isinstance(self._script, Sequence):
            return seen, self._script
        if seen.number < len(self._script):
            return seen, self._script[seen.number]
        return seen, Failure(500, {"error": {"message": f"the script ended before request {seen.number}"}})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, owner: LlmServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        """Wake whoever waits on a connection that is kept alive."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path not in DIALECTS:
            self._body(404, {"error": {"message": f"no such path: {path}"}}, {})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen, step = self.server.owner.step(path, headers, json.loads(content))
        with contextlib.suppress(OSError):
            self._play(seen, step)

    def _play(self, seen: Seen, step: Step) -> None:
        if isinstance(step, Hang):
            self.server.owner.closing.wait()
            self._break_off()
        elif isinstance(step, Drop):
            self._pause(step.delay_s)
            self._break_off()
        elif isinstance(step, Failure):
            self._pause(step.delay_s)
            self._body(step.status, step.body, step.headers)
        elif isinstance(step, Raw):
            self._stream(step.chunks, step.content_type)
        elif seen.body.get("stream"):
            self._pause(step.delay_s)
            self._stream_answer(seen, step)
        else:
            self._pause(step.delay_s)
            content = whole_body(step, str(seen.body.get("model", "")), seen.dialect)
            self._body(200, content, {}, cut=step.drop_after is not None)

    def _stream_answer(self, seen: Seen, answer: Answer) -> None:
        options = seen.body.get("stream_options") or {}
        model = str(seen.body.get("model", ""))
        events = stream_events(answer, model, seen.dialect, with_usage=bool(options.get("include_usage")))
        chunks, texts, broken_off = [], 0, False
        for kind, content in events:
            texts += kind == "text"
            if answer.drop_after is not None and (texts > answer.drop_after or (kind == "end" and texts > 0)):
                broken_off = True
                break
            chunks.append(content)
        self._stream(self._slowly(chunks, answer.gap_s), end=answer.clean_drop or not broken_off)
        if broken_off and not answer.clean_drop:
            self._break_off()

    def _slowly(self, chunks: Iterable[bytes], gap_s: float) -> Iterable[bytes]:
        for chunk in chunks:
            self._pause(gap_s)
            yield chunk

    def _stream(self, chunks: Iterable[bytes], content_type: str = "text/event-stream", *, end: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if end:
            self.wfile.write(b"0\r\n\r\n")

    def _body(self, status: int, body: Any, headers: dict[str, str], *, cut: bool = False) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._break_off()

    def _pause(self, seconds: float) -> None:
        """Wait, unless the server closes."""
        if seconds > 0:
            self.server.owner.closing.wait(seconds)

    def _break_off(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Quiet: tests look at ``seen``."""


def _text(content: Any) -> str:
    """Text of a message, also of one in blocks."""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
