"""What an error of a provider means: by status, by its code, and by the words that providers really use."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from ptxbench.models.client import CONTEXT_EXHAUSTED

FILTERED = "filtered"
"""Kind of a refused request: not a fault, the provider's answer to this prompt."""

_TOO_LONG = re.compile(
    "|".join(
        (
            r"context_length_exceeded",  # OpenAI's code, also of DeepSeek, Groq, xAI
            r"maximum context (length|size)",  # OpenAI, vLLM, DeepSeek, OpenRouter; with 'model's' SGLang
            r"exceeds the context window",  # OpenAI, newer
            r"(longer|larger|greater) than the (model's|maximum) (context|model) length",  # SGLang, vLLM
            r"maximum model length",  # vLLM
            r"prompt is too long",  # Anthropic
            r"input tokens exceed",  # OpenAI's Responses, gateways
            r"exceeds? context limit",  # Anthropic, input and output together
            r"exceeds the maximum number of tokens allowed",  # Gemini
            r"input is too long for requested model",  # Bedrock
            r"maximum prompt length is",  # xAI
            r"prompt exceeds max length",  # Z.ai
            r"range of input length should be",  # DashScope
            r"exceeded model token limit",  # Moonshot
            r"exceeds the available context size",  # llama.cpp
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",  # TGI
            r"too large for model with \d+ maximum context length",  # Mistral
            r"current length is \d+ while limit is",  # Cerebras
            r"reduce the length of the (messages|prompt|input)",  # Groq, OpenAI
            r"context window (of|exceeded|limit)",  # MiniMax and gateways
        )
    ),
    re.IGNORECASE,
)
_NO_FUNDS = re.compile(
    r"insufficient_quota|credit balance|insufficient (balance|credits|funds)|billing_hard_limit|"
    r"exceeded your current quota|out of credits|payment required|arrearage|余额不足",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content_filter|content_policy|content management policy|usage policy|usage policies|safety system|"
    r"data_inspection_failed|responsibleaipolicyviolation|content exists risk|\b1301\b",
    re.IGNORECASE,
)
_OVERLOADED = re.compile(r"overloaded|no available (server|worker)", re.IGNORECASE)
_RETRY_DELAY = re.compile(r"['\"]?retryDelay['\"]?\s*:\s*['\"]([0-9.]+)s")
"""Gemini says how long to wait in the body."""

_BY_STATUS = {
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "not_found",
    408: "timeout",
    413: CONTEXT_EXHAUSTED,
    409: "server_error",
    410: "not_found",
    425: "overloaded",
    429: "rate_limited",
    503: "overloaded",
    504: "server_error",
    529: "overloaded",
}
_TELLS_ITSELF = frozenset({401, 403, 404, 429})
"""Statuses whose meaning no word of the body changes to that of a prompt that is too long."""


class Fault(NamedTuple):
    """An error of a provider, understood. ``kind`` is one of ModelError's, or FILTERED."""

    kind: str
    detail: str
    """The provider's words, whole, with whatever they hold."""
    retry_after_s: float | None = None


def read_fault(status: int, headers: Mapping[str, str], body: str) -> Fault:
    """The meaning of an answer with the error ``status``; the names in ``headers`` are lower case."""
    codes, message = error_words(body)
    delay = retry_after(headers, body)
    detail = f"HTTP {status}: {message or 'without a word'}"
    return Fault(kind_of(status, codes, message, delay), detail, delay)


def read_fault_in_stream(body: str) -> Fault:
    """The meaning of an error object inside a stream whose status was 200. Its code is often the missing status."""
    codes, message = error_words(body)
    status = next((int(code) for code in codes.split() if re.fullmatch(r"[45]\d\d", code)), None)
    if status is None and "rate_limit" in codes:
        status = 429
    kind = kind_of(status or 500, codes, message, None)
    return Fault(kind, f"in the stream: {message or 'an error without a word'}")


def is_too_long(words: str) -> bool:
    """Whether a provider says with ``words`` that the conversation does not fit the model."""
    return _TOO_LONG.search(words) is not None


def kind_of(status: int, codes: str, message: str, delay: float | None) -> str:
    """The kind of an error with the HTTP ``status``, its codes and words; ``delay``: what it asks to wait."""
    words = f"{codes} {message}"
    if status not in _TELLS_ITSELF and is_too_long(words):
        return CONTEXT_EXHAUSTED
    # Gemini calls a limit per minute a quota; it then says when to come back.
    if status in (400, 402, 403, 429) and _NO_FUNDS.search(words) and (status != 429 or delay is None):
        return "quota"
    if status in (400, 403, 422, 451) and _REFUSED.search(words):
        return FILTERED
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "overloaded" if _OVERLOADED.search(words) else "server_error"
    return "bad_request"


def error_words(body: str) -> tuple[str, str]:
    """Codes (types, codes and statuses, space separated) and message of an error body; all of it if it is not JSON."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return "", " ".join(body.split())
    if isinstance(data, list) and data:  # Gemini
        data = data[0]
    if not isinstance(data, dict):
        return "", " ".join(body.split())
    layers = [data]
    if isinstance(data.get("error"), dict):
        layers.append(data["error"])
    codes = [
        str(layer[name])
        for layer in layers
        for name in ("type", "code", "status")
        if isinstance(layer.get(name), (str, int))
    ]
    texts = [layer.get(name) for layer in reversed(layers) for name in ("message", "detail", "error")]
    message = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    return " ".join(codes), " ".join((message or body).split())


def retry_after(headers: Mapping[str, str], body: str = "") -> float | None:
    """Seconds that the provider asks to wait: ``retry-after-ms``, ``retry-after`` (seconds or a date), or the body."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if value and (moment := _date(value)) is not None:
        return max(0.0, moment - time.time())
    found = _RETRY_DELAY.search(body)
    return _number(found.group(1)) if found else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else math.nan
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _date(text: str) -> float | None:
    """Seconds since 1970 of an HTTP date."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
