"""What every request passes before the application sees it: token or origin, the limit on its size, the clock."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from ptxbench.service.metrics import Metrics
from ptxbench.service.settings import BODY_TIMEOUT_S, MAX_BODY_BYTES, is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
OPEN_PATHS = frozenset({"/health"})
"""Answered without a token: whoever watches over containers has none."""
SUBMISSIONS = frozenset({"evaluate", "profile", "sanitize", "debug"})
_OPERATIONS = SUBMISSIONS | {"", "tasks", "definitions", "workloads", "health", "metrics", "docs", "openapi.json"}


class _RefusedBodyError(Exception):
    """A body that is not read to its end."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _GoneError(Exception):
    """Nobody is left to hear an answer."""


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: Application, token: str | None, metrics: Metrics, *, local: bool = True) -> None:
        """``local``: only this machine reaches the address that the service listens on."""
        self._inner = inner
        self._local = local
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
                await self._inner(scope, await _whole(receive) if scope["method"] == "POST" else receive, sending)
        except _RefusedBodyError as error:
            await _refuse(sending, error.status, str(error))
        except _GoneError:
            status = 499  # as nginx counts them
        finally:
            first = scope["path"].removeprefix("/").partition("/")[0]  # a client may send a path without any
            operation = first if first in _OPERATIONS else "other"
            seconds = time.perf_counter() - started
            self._metrics.answered(operation, status, seconds, submission=first in SUBMISSIONS)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._expected is not None and scope["path"] not in OPEN_PATHS:
            found = headers.get(b"authorization", b"")
            if not hmac.compare_digest(found, self._expected):
                return 401, "expected the service's bearer token in the header Authorization, found another or none"
        elif self._expected is None and not self._is_welcome(headers):
            return 403, "expected no Origin of another site, since submissions are run here; set a token to serve pages"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return 413, _too_large(length.decode("ascii", "replace"))
        return None

    def _is_welcome(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request comes from no page in a browser, or from one of this machine.

        Browsers send what any page asks for, to this machine too, and name the page's site in ``Origin`` (RFC 6454).
        Its being the address that was asked proves nothing here: a name can be made to mean this machine.
        """
        origin = headers.get(b"origin")
        if origin is None:
            return True
        try:
            parts = urlsplit(origin.decode("latin-1"))
            host = parts.hostname or ""
        except ValueError:
            return False
        return is_loopback(host) or (not self._local and parts.netloc.encode("latin-1") == headers.get(b"host"))


def _too_large(found: str) -> str:
    return f"expected a body of at most {MAX_BODY_BYTES} bytes, found {found}; send less"


async def _whole(receive: Receive) -> Receive:
    """``receive`` with the whole body as its first message.

    Read here and not by the application, whose own handling of errors would answer 500 where reading has to end.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _GoneError
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise _RefusedBodyError(413, _too_large("more"))
                more = message.get("more_body", False)
    except TimeoutError:
        detail = f"expected the body within {BODY_TIMEOUT_S:g} s, found {len(body)} bytes of it; send it again"
        raise _RefusedBodyError(408, detail) from None
    first: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

    async def receiving() -> Message:
        nonlocal first
        message, first = first, None
        return message if message is not None else await receive()

    return receiving


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (408, 413):
        # What is still on its way would be read as the next request.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
