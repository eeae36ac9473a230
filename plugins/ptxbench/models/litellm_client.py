"""Any provider that litellm knows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pydantic import JsonValue

from ptxbench.errors import InputError
from ptxbench.models import litellm_library, openai_answer
from ptxbench.models.client import ModelError, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.models.event_loop import within
from ptxbench.models.http_faults import FILTERED
from ptxbench.models.litellm_faults import read_error
from ptxbench.models.openai_answer import Answer
from ptxbench.models.pricing import cost
from ptxbench.models.secrets import Scrubber, environment_secrets, missing_key, read_key
from ptxbench.records import Message, Reply, Usage

_OTHER_CREDENTIALS = frozenset({"azure", "azure_ai"})
"""Providers that a key is only one way to."""


class LitellmClient:
    """Calls litellm without its retries, fallbacks and silent changes.

    Raises InputError where litellm or the key is missing, or litellm is a malicious release. litellm is imported by
    the first call; by the constructor only where the entry names no key, since litellm knows then which it needs.
    """

    def __init__(self, entry: ModelEntry) -> None:
        litellm_library.check_installed(entry.name)
        self._entry = entry
        self._key = read_key(entry)
        if self._key is None:
            _check_environment(entry)
        # Without a key of the entry, litellm finds one of its own in the environment.
        self._scrub = Scrubber(self._key) if self._key is not None else Scrubber(*environment_secrets())
        self._loop = litellm_library.acquire_loop()
        self._closed = False

    def __repr__(self) -> str:
        return f"LitellmClient({self._entry.model})"

    def settings(self) -> Mapping[str, JsonValue]:
        """Provider, address and everything that litellm is asked for beside the messages."""
        base: dict[str, JsonValue] = {"api_base": self._entry.api_base} if self._entry.api_base else {}
        return {"provider": "litellm", **base, **self._entry.chat_parameters()}

    def complete(self, request: Request) -> Reply:
        """One call of the provider."""
        litellm = litellm_library.library()
        started = time.monotonic()
        try:
            answer = self._loop.run(
                lambda: self._answer(litellm, request.messages),
                timeout_s=self._entry.timeout_s,
                cancelled=lambda: self._closed or request.cancelled(),
            )
        except ModelError as error:
            raise self._error(error.kind, str(error), error.retry_after_s) from None
        except Exception as error:
            fault = read_error(error)
            if fault.kind != FILTERED:
                # Not chained: litellm's errors hold the request, and with it the key.
                raise self._error(fault.kind, fault.detail, fault.retry_after_s) from None
            answer = Answer("", "", "content_filter", Usage(), "", "")
        return self._reply(litellm, answer, time.monotonic() - started)

    def close(self) -> None:
        """Give up what runs; the last client lets go of litellm's connections."""
        if not self._closed:
            self._closed = True
            litellm_library.release_loop()

    def _error(self, kind: str, detail: str, retry_after_s: float | None) -> ModelError:
        return ModelError(kind, self._scrub.bounded(f"{self._entry.model}: {detail}"), retry_after_s)

    def _reply(self, litellm: Any, answer: Answer, latency_s: float) -> Reply:  # noqa: ANN401
        price = cost(
            self._entry.prices,
            answer.usage,
            cache_write_tokens=answer.cache_write_tokens,
            price_map=lambda: _mapped_price(litellm, str(self._entry.model), answer),
        )
        return answer.reply(price=price, latency_s=latency_s, model=str(self._entry.model), scrub=self._scrub)

    def _access(self) -> dict[str, str]:
        """Kept in no variable, which a traceback would show."""
        key = {"api_key": self._key.reveal()} if self._key is not None else {}
        return key | ({"api_base": self._entry.api_base} if self._entry.api_base is not None else {})

    async def _answer(self, litellm: Any, messages: tuple[Message, ...]) -> Answer:  # noqa: ANN401
        import httpx

        # A little more than our own limits, which say better what they waited for.
        limit = self._entry.timeout_s + 5.0
        call = litellm.acompletion(
            messages=[{"role": message.role, "content": message.content} for message in messages],
            timeout=httpx.Timeout(limit, connect=self._entry.connect_timeout_s),
            num_retries=0,
            max_retries=0,
            drop_params=False,
            **self._entry.chat_parameters(),
            **self._access(),
        )
        if not self._entry.stream:
            return _whole(await call)
        stream = await within(self._entry.first_byte_timeout_s, call, "the first byte")
        return await self._read_stream(stream)

    async def _read_stream(self, stream: Any) -> Answer:  # noqa: ANN401
        text, reasoning, usage, model, response_id = [], [], None, "", ""
        async for chunk in self._chunks(stream):
            choice = _ours(chunk.choices)
            delta = choice.delta if choice is not None else None
            text.append(getattr(delta, "content", None) or "")
            reasoning.append(getattr(delta, "reasoning_content", None) or "")
            usage = getattr(chunk, "usage", None) or usage
            model, response_id = model or chunk.model or "", response_id or chunk.id or ""
        if not _has_usage(stream):
            usage = None
        # litellm ends every stream with a finish_reason, its own where the provider sent none.
        finish_reason = getattr(stream, "received_finish_reason", None)
        if not finish_reason:
            length = len("".join(text))
            raise ModelError("connection", f"expected a finish_reason, found none after {length} characters")
        return _built("".join(text), "".join(reasoning), finish_reason, usage, model, response_id)

    async def _chunks(self, stream: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        """The pieces of a stream as litellm makes them. Raises ModelError for a pause that is too long."""
        pieces = aiter(stream)
        limit, count = self._entry.first_byte_timeout_s, 0
        while True:
            try:
                chunk = await within(limit, anext(pieces), f"more of the answer after {count} pieces")
            except StopAsyncIteration:
                return
            yield chunk
            limit, count = self._entry.between_bytes_timeout_s, count + 1


def _check_environment(entry: ModelEntry) -> None:
    """Raises InputError where litellm knows no such provider, or misses the variable of its key.

    Only of keys: what litellm also calls missing, a default exists for, or a cloud's own chain of credentials.
    """
    litellm = litellm_library.library()
    try:
        _, provider, *_ = litellm.get_llm_provider(model=entry.model, api_base=entry.api_base)
        found = litellm.validate_environment(model=entry.model)
    except Exception:
        raise InputError(
            f"model {entry.name}: expected PROVIDER/MODEL with a provider that litellm knows, found {entry.model!r}"
        ) from None
    keys = [name for name in found["missing_keys"] if name.endswith("_API_KEY")]
    if keys and not found["keys_in_environment"] and provider not in _OTHER_CREDENTIALS:
        raise missing_key(entry.name, *keys)


def _whole(response: Any) -> Answer:  # noqa: ANN401
    """An answer that was not streamed."""
    choice = _ours(response.choices)
    if choice is None:
        raise openai_answer.malformed("expected an answer with a choice, found none")
    return _built(
        choice.message.content or "",
        getattr(choice.message, "reasoning_content", None) or "",
        choice.finish_reason or "",
        getattr(response, "usage", None),
        response.model or "",
        response.id or "",
    )


def _ours(choices: Any) -> Any:  # noqa: ANN401
    """The choice that we asked for, of several the one numbered 0; None where it is not among them."""
    return next((choice for choice in choices or () if getattr(choice, "index", 0) in (0, None)), None)


def _has_usage(stream: Any) -> bool:  # noqa: ANN401
    """Whether the provider sent its counts. Where none came, litellm counts with some tokenizer of its own."""
    return any(getattr(chunk, "usage", None) is not None for chunk in getattr(stream, "chunks", ()))


def _built(text: str, reasoning: str, finish_reason: str, usage: object, model: str, response_id: str) -> Answer:
    prompt_tokens = getattr(usage, "prompt_tokens", None) or None
    counts = {
        "prompt_tokens": prompt_tokens,
        # A prompt of no token is litellm's word for counts that did not come.
        "completion_tokens": getattr(usage, "completion_tokens", None) if prompt_tokens else None,
        "prompt_tokens_details": {"cached_tokens": _inner(usage, "prompt_tokens_details", "cached_tokens")},
        "completion_tokens_details": {
            "reasoning_tokens": _inner(usage, "completion_tokens_details", "reasoning_tokens")
        },
    }
    written = getattr(usage, "cache_creation_input_tokens", None)
    return Answer(
        text=text,
        reasoning=reasoning,
        finish_reason=finish_reason,
        usage=openai_answer.read_usage(counts),
        model=model,
        response_id=response_id,
        cache_write_tokens=max(0, written) if isinstance(written, int) else 0,
    )


def _inner(usage: object, details: str, name: str) -> object:
    return getattr(getattr(usage, details, None), name, None)


def _mapped_price(litellm: Any, model: str, answer: Answer) -> float | None:  # noqa: ANN401
    """US dollars by litellm's price map; None where it does not know the model."""
    usage = answer.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    try:
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cached_input_tokens or 0,
            cache_creation_input_tokens=answer.cache_write_tokens,
        )
    except Exception:
        return None
    return float(sum(parts))
