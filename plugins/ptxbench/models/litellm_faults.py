"""What an exception of litellm means. By class names, so that reading one needs no import of litellm."""

from __future__ import annotations

import re
from typing import Any

from ptxbench.models import http_faults
from ptxbench.models.client import CONTEXT_EXHAUSTED, ModelError
from ptxbench.models.http_faults import FILTERED, Fault

_BY_CLASS = {
    "ContextWindowExceededError": CONTEXT_EXHAUSTED,
    "ContentPolicyViolationError": FILTERED,
    "BudgetExceededError": "quota",
    "PaymentRequiredError": "quota",
    "AuthenticationError": "authentication",
    "PermissionDeniedError": "authentication",
    "NotFoundError": "not_found",
    "Timeout": "timeout",
    "UnsupportedParamsError": "bad_request",
    "LiteLLMUnknownProvider": "not_found",
    "ImportError": "unavailable",
}
"""Classes that say it all, as of litellm 1.110; a subclass means what its base means."""

_SYNTHETIC = frozenset({"APIConnectionError", "InternalServerError", "MidStreamFallbackError", "APIError"})
"""Classes that litellm also gives, with status 500, to what never was an answer with an error status."""

_MALFORMED = re.compile(r"Unterminated string|Expecting (value|property|',')|Extra data|Unable to get json|JSONDecode")
_DISCONNECTED = re.compile(
    r"Connection error|disconnected|not completed|peer closed|incomplete chunked|Connection reset|Cannot connect|"
    r"before a finish_reason|Connect call failed|ReadError|RemoteProtocolError|getaddrinfo|Name or service",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:litellm\.)?[A-Z]\w*(?:Error|Exception|Timeout)\b\s*[:-]\s*")
_BYTES = re.compile(r"b(['\"])(\{.*\})\1", re.DOTALL)
_APPENDED = re.compile(
    r"\s*(Traceback \(most recent call last\)|Received Model Group=|LiteLLM Retried:|Original exception:|"
    r"Handle with `litellm).*",
    re.DOTALL,
)
"""What litellm adds at the end."""


def read_error(error: Exception) -> Fault:
    """The meaning of ``error``; its words are whole, without the traceback."""
    own = _own_error(error)
    if own is not None:
        return Fault(own.kind, str(own), own.retry_after_s)
    names = [kind.__name__ for kind in type(error).__mro__]
    codes, message = _words(str(error))
    headers = _headers(error)
    delay = http_faults.retry_after(headers, str(error))
    detail = f"{type(error).__name__}: {message or 'without a word'}"
    return Fault(_kind(names, _status(error), codes, message, delay, answered=bool(headers)), detail, delay)


def _own_error(error: BaseException | None) -> ModelError | None:
    """The error that we raised under litellm, which makes others of it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ModelError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _kind(names: list[str], status: int, codes: str, message: str, delay: float | None, *, answered: bool) -> str:
    known = next((_BY_CLASS[name] for name in names if name in _BY_CLASS), None)
    if known in (CONTEXT_EXHAUSTED, FILTERED, "quota", "timeout", "unavailable"):
        return known
    if names[0] in _SYNTHETIC:
        if _MALFORMED.search(message):
            return "malformed_response"
        by_words = http_faults.kind_of(status, codes, message, delay)
        if by_words != "server_error":
            return by_words
        if not answered or _DISCONNECTED.search(message):
            return "connection"
        return "server_error"
    by_words = http_faults.kind_of(status, codes, message, delay) if status else "malformed_response"
    return known if known is not None and by_words not in (CONTEXT_EXHAUSTED, FILTERED, "quota") else by_words


def _status(error: Exception) -> int:
    """The HTTP status that litellm gives the error; 0 for an exception that is not of that kind at all."""
    value = getattr(error, "status_code", 0)
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _headers(error: Exception) -> dict[str, str]:
    """Headers of the provider's answer; empty where there was none."""
    found: dict[str, str] = {}
    response: Any = getattr(error, "response", None)
    sources: tuple[Any, ...] = (getattr(response, "headers", None), getattr(error, "litellm_response_headers", None))
    for source in sources:
        for name, value in dict(source or {}).items():
            found.setdefault(str(name).lower().removeprefix("llm_provider-"), str(value))
    return found


def _words(text: str) -> tuple[str, str]:
    """Codes and message: of the provider's JSON where litellm quotes it, else what it says without its decoration."""
    text = _APPENDED.sub("", text)
    quoted = _BYTES.search(text)
    body = quoted.group(2) if quoted else text[text.find("{") : text.rfind("}") + 1]
    if quoted:
        body = body.replace("\\'", "'")
    if body:
        codes, message = http_faults.error_words(body)
        if codes:
            return codes, message
    while (shorter := _PREFIX.sub("", text.strip(), count=1)) != text.strip():
        text = shorter
    return "", " ".join(text.split())
