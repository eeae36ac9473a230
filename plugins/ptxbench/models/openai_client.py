"""An OpenAI-compatible server (vLLM, SGLang, llama.cpp, OpenAI itself), asked directly over HTTP."""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ptxbench.errors import InputError
from ptxbench.models import http_faults, openai_answer
from ptxbench.models.client import ModelError, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.models.event_loop import EventLoop, within
from ptxbench.models.openai_answer import Answer, Assembly
from ptxbench.models.pricing import cost
from ptxbench.models.secrets import Scrubber, read_key
from ptxbench.records import Message, Reply, Usage

if TYPE_CHECKING:
    import httpx

MAX_RESPONSE_BYTES = 64 << 20
"""Far more than any answer; a server that never ends would otherwise fill the memory."""
MAX_LINE_BYTES = 8 << 20
"""Of a stream: far more than one piece of an answer."""


class OpenAIClient:
    """Calls ``/chat/completions`` of one server. Raises InputError where httpx or the key is missing."""

    def __init__(self, entry: ModelEntry) -> None:
        if importlib.util.find_spec("httpx") is None:
            raise InputError(f"model {entry.name}: expected the package httpx, found none; pip install 'ptxbench[llm]'")
        self._entry = entry
        self._url = f"{entry.api_base}/chat/completions"
        self._key = read_key(entry)
        self._scrub = Scrubber(self._key)
        self._loop = EventLoop()
        self._http: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"OpenAIClient({self._entry.model}, {self._entry.api_base})"

    @cached_property
    def _httpx(self) -> Any:  # noqa: ANN401 - the module
        """Imported for the first call: a run that has all its answers makes none."""
        return importlib.import_module("httpx")

    def settings(self) -> Mapping[str, JsonValue]:
        """Provider, address and everything in the body beside the messages."""
        return {"provider": "openai", "api_base": self._entry.api_base, **self._entry.chat_parameters()}

    def complete(self, request: Request) -> Reply:
        """One call of the server."""
        started = time.monotonic()
        try:
            answer = self._loop.run(
                lambda: self._answer(request.messages), timeout_s=self._entry.timeout_s, cancelled=request.cancelled
            )
        except ModelError as error:
            where = f"{self._entry.model} at {self._entry.api_base}"
            raise ModelError(error.kind, self._scrub.bounded(f"{where}: {error}"), error.retry_after_s) from None
        return self._reply(answer, time.monotonic() - started)

    def close(self) -> None:
        """Break off what runs and let go of the connections."""
        self._loop.close(self._close_http)

    async def _close_http(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _reply(self, answer: Answer, latency_s: float) -> Reply:
        price = cost(
            self._entry.prices,
            answer.usage,
            cache_write_tokens=answer.cache_write_tokens,
            stated=answer.stated_cost,
        )
        return answer.reply(price=price, latency_s=latency_s, model=str(self._entry.model), scrub=self._scrub)

    def _connection(self) -> httpx.AsyncClient:
        """Made in the loop's thread, where it is used. The time limits of reading are ours."""
        if self._http is None:
            seconds = self._entry.connect_timeout_s
            limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30.0)
            timeout = self._httpx.Timeout(None, connect=seconds, write=max(seconds, 60.0))
            try:
                self._http = self._httpx.AsyncClient(timeout=timeout, limits=limits)
            except Exception as error:  # a proxy or certificates in the environment that cannot be used
                raise ModelError("unavailable", f"no connection can be made as the environment says: {error}") from None
        return self._http

    def _headers(self) -> dict[str, str]:
        """Kept in no variable, which a traceback would show."""
        key = {"Authorization": f"Bearer {self._key.reveal()}"} if self._key is not None else {}
        accepted = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
        return {"Content-Type": "application/json"} | accepted | key

    async def _answer(self, messages: tuple[Message, ...]) -> Answer:
        httpx = self._httpx
        conversation: list[JsonValue] = [{"role": message.role, "content": message.content} for message in messages]
        content = json.dumps(self._entry.chat_parameters() | {"messages": conversation}).encode()
        connection = self._connection()
        try:
            message = connection.build_request("POST", self._url, headers=self._headers(), content=content)
            limit = self._entry.first_byte_timeout_s if self._entry.stream else self._entry.timeout_s
            response = await within(limit, connection.send(message, stream=True), "the first byte")
            try:
                return await self._read(response)
            finally:
                await response.aclose()
        except httpx.ConnectTimeout:
            raise ModelError("timeout", f"no connection within {self._entry.connect_timeout_s:g} s") from None
        except httpx.TimeoutException as error:
            raise ModelError("timeout", f"{type(error).__name__} while the request was sent") from None
        except httpx.TransportError as error:
            raise ModelError("connection", f"the connection failed: {error or type(error).__name__}") from None

    async def _read(self, response: httpx.Response) -> Answer:
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if response.status_code != 200:
            return _refused(response, await self._text(response) if coding == "identity" else "")
        if coding != "identity":
            # Unpacked, a few bytes may be more than the memory holds, by several codings in turn at once.
            raise openai_answer.malformed(f"expected a body that is not compressed, as was asked for, found {coding!r}")
        if "text/event-stream" not in response.headers.get("content-type", ""):
            data = openai_answer.read_json(await self._text(response), "the answer")
            if data.get("error"):
                return _filtered_or_raise(http_faults.read_fault_in_stream(json.dumps(data)))
            return openai_answer.read_answer(data)
        return await self._read_stream(response)

    async def _text(self, response: httpx.Response) -> str:
        pieces = [piece async for piece in self._pieces(response, self._entry.timeout_s)]
        return b"".join(pieces).decode("utf-8", "replace")

    async def _read_stream(self, response: httpx.Response) -> Answer:
        assembly = Assembly()
        async for event in _events(self._pieces(response, self._entry.between_bytes_timeout_s)):
            if event == "[DONE]":
                break
            data = openai_answer.read_json(event, "a piece of the stream")
            if data.get("error") or data.get("object") == "error":
                return _filtered_or_raise(http_faults.read_fault_in_stream(event))
            assembly.add(data)
        return assembly.answer()

    async def _pieces(self, response: httpx.Response, between_s: float) -> AsyncIterator[bytes]:
        """The body as it comes. Raises ModelError for a pause that is too long, or for far too much."""
        body = response.aiter_raw()
        total, limit, what = 0, max(between_s, self._entry.first_byte_timeout_s), "the first byte of the body"
        while True:
            try:
                piece = await within(limit, anext(body), what)
            except StopAsyncIteration:
                return
            total += len(piece)
            if total > MAX_RESPONSE_BYTES:
                raise openai_answer.malformed(f"expected an answer of at most {MAX_RESPONSE_BYTES} bytes, found more")
            yield piece
            limit, what = between_s, f"more of the answer after {total} bytes"


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of server-sent events, of which each line is one here.

    Only LF ends a line: JSON may hold U+2028 and the like as they are. What no LF ends was cut off. Raises ModelError
    for a line that is too long.
    """
    begun = bytearray()
    async for piece in pieces:
        *lines, rest = piece.split(b"\n")
        for line in lines:
            text = bytes(begun + line).rstrip(b"\r").decode("utf-8", "replace")
            begun.clear()
            if text.startswith("data:"):
                yield text.removeprefix("data:").strip(" ")
        begun += rest
        if len(begun) > MAX_LINE_BYTES:
            raise openai_answer.malformed(f"expected lines of at most {MAX_LINE_BYTES} bytes, found a longer one")


def _refused(response: httpx.Response, body: str) -> Answer:
    if 300 <= response.status_code < 400:
        raise ModelError(
            "bad_request", f"HTTP {response.status_code}: the server redirects; name its final URL as api_base"
        )
    headers = {name.lower(): value for name, value in response.headers.items()}
    return _filtered_or_raise(http_faults.read_fault(response.status_code, headers, body))


def _filtered_or_raise(fault: http_faults.Fault) -> Answer:
    """A prompt that the provider refuses is its answer to it; everything else is an error."""
    if fault.kind != http_faults.FILTERED:
        raise ModelError(fault.kind, fault.detail, fault.retry_after_s)
    return Answer("", "", "content_filter", Usage(), "", "")
