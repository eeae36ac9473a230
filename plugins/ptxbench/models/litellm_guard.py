"""What litellm's HTTP clients are held to: no redirect, no compression, no answer without end.

Imported with litellm, since it needs httpx.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

import httpx

from ptxbench.errors import InputError
from ptxbench.models.client import ModelError
from ptxbench.models.openai_answer import malformed
from ptxbench.models.openai_client import MAX_LINE_BYTES, MAX_RESPONSE_BYTES

_MARK = "_ptxbench_original"


def hold_all(litellm: Any) -> None:  # noqa: ANN401 - litellm has no types that hold
    """Hold every client that litellm has made for it, or makes. Raises InputError for a release that cannot be held."""
    try:
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler, get_ssl_configuration

        for owner, hold in ((AsyncHTTPHandler, hold_async), (HTTPHandler, _hold_sync)):
            made = owner.create_client
            if not hasattr(made, _MARK):
                owner.create_client = _holding(made, hold)
        if litellm.aclient_session is None or litellm.aclient_session.is_closed:
            # Its setting for the clients that OpenAI's package makes. Time limits come with each request.
            litellm.aclient_session = hold_async(httpx.AsyncClient(verify=get_ssl_configuration()))
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"expected a release of litellm whose connections can be kept from following redirects; found {error}. "
            "Install another one, or use provider: openai"
        ) from None


def hold_async(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """``client``, held. A redirect would take the key and the prompt to whatever host it names."""
    client.follow_redirects = False
    client.headers["Accept-Encoding"] = "identity"
    hooks = client.event_hooks
    client.event_hooks = hooks | {"response": [*hooks.get("response", []), _check_async]}
    return client


def _hold_sync(client: httpx.Client) -> httpx.Client:
    client.follow_redirects = False
    client.headers["Accept-Encoding"] = "identity"
    hooks = client.event_hooks
    client.event_hooks = hooks | {"response": [*hooks.get("response", []), _check_sync]}
    return client


def _holding(made: Callable[..., Any], hold: Callable[[Any], Any]) -> Callable[..., Any]:
    def create_client(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return hold(made(*arguments, **options))

    setattr(create_client, _MARK, made)
    return create_client


async def _check_async(response: httpx.Response) -> None:
    allowance = _checked(response)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _AsyncBounded(response.stream, allowance)


def _check_sync(response: httpx.Response) -> None:
    allowance = _checked(response)
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _SyncBounded(response.stream, allowance)


def _checked(response: httpx.Response) -> _Allowance:
    """What may be read of a response. Raises ModelError."""
    if 300 <= response.status_code < 400:
        raise_redirect(response.status_code)
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return _Allowance(in_lines="text/event-stream" in response.headers.get("content-type", ""))
    if response.status_code == 200:
        raise_compressed(coding)
    # The status says enough of an error.
    del response.headers["content-encoding"]
    return _Allowance(unread=True)


def raise_redirect(status: int) -> NoReturn:
    """The error of a server that names another address."""
    raise ModelError("bad_request", f"HTTP {status}: the server redirects; name its final URL as api_base")


def raise_compressed(coding: str) -> NoReturn:
    """The error of a body that may be any size when it is unpacked, by several codings in turn at once."""
    raise malformed(f"expected a body that is not compressed, as was asked for, found {coding!r}")


class _Allowance:
    """How much of a body is read."""

    def __init__(self, *, in_lines: bool = False, unread: bool = False) -> None:
        self.unread = unread
        self._in_lines = in_lines
        self._total = self._line = 0

    def spend(self, piece: bytes) -> None:
        """Raises ModelError for more than any answer has."""
        self._total += len(piece)
        if self._total > MAX_RESPONSE_BYTES:
            raise malformed(f"expected an answer of at most {MAX_RESPONSE_BYTES} bytes, found more")
        end = piece.rfind(b"\n")
        self._line = self._line + len(piece) if end < 0 else len(piece) - end - 1
        if self._in_lines and self._line > MAX_LINE_BYTES:
            raise malformed(f"expected lines of at most {MAX_LINE_BYTES} bytes, found a longer one")


class _AsyncBounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, allowance: _Allowance) -> None:
        self._stream = stream
        self._allowance = allowance

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._allowance.unread:
            return
        async for piece in self._stream:
            self._allowance.spend(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _SyncBounded(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, allowance: _Allowance) -> None:
        self._stream = stream
        self._allowance = allowance

    def __iter__(self) -> Iterator[bytes]:
        if self._allowance.unread:
            return
        for piece in self._stream:
            self._allowance.spend(piece)
            yield piece

    def close(self) -> None:
        self._stream.close()
