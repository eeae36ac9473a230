"""What every request passes before the application sees it: the token, the limit on its size, the clock."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ptxbench.service.metrics import Metrics
from ptxbench.service.settings import MAX_BODY_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
OPEN_PATHS = frozenset({"/health"})
"""Answered without a token: whoever watches over containers has none."""
SUBMISSIONS = frozenset({"evaluate", "profile", "sanitize", "debug"})
_OPERATIONS = SUBMISSIONS | {"", "tasks", "definitions", "workloads", "health", "metrics", "docs", "openapi.json"}


class _TooLargeError(Exception):
    """A body without a length turned out too long."""


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: Application, token: str | None, metrics: Metrics) -> None:
        self._inner = inner
        self._expected = f"Bearer {token}".encode() if token else None
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                await _refuse(sending, *refusal)
            else:
                await self._inner(scope, _limited(receive), sending)
        except _TooLargeError:
            await _refuse(sending, 413, _too_large("more"))
        finally:
            first = scope["path"].split("/", 2)[1] if scope["path"] else ""
            operation = first if first in _OPERATIONS else "other"
            seconds = time.perf_counter() - started
            self._metrics.answered(operation, status, seconds, submission=first in SUBMISSIONS)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._expected is not None and scope["path"] not in OPEN_PATHS:
            found = headers.get(b"authorization", b"")
            if not hmac.compare_digest(found, self._expected):
                return 401, "expected the service's bearer token in the header Authorization, found another or none"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return 413, _too_large(length.decode("ascii", "replace"))
        return None


def _too_large(found: str) -> str:
    return f"expected a body of at most {MAX_BODY_BYTES} bytes, found {found}; send less"


def _limited(receive: Receive) -> Receive:
    received = 0

    async def receiving() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise _TooLargeError
        return message

    return receiving


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 413:
        # What is still on its way would be read as the next request.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
