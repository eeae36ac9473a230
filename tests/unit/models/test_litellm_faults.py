"""litellm's exceptions, the real ones."""

import json
from typing import Any

import pytest

from ptxbench.models.client import CONTEXT_EXHAUSTED
from ptxbench.models.http_faults import FILTERED
from ptxbench.models.litellm_faults import read_error
from ptxbench.models.litellm_library import library


def made(name: str, message: str, **fields: Any) -> Exception:
    kind = getattr(library().exceptions, name)
    error: Exception = kind(message=message, llm_provider="p", model="m", **fields)
    return error


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("ContextWindowExceededError", "too much", CONTEXT_EXHAUSTED),
        ("BadRequestError", "The decoder prompt is longer than the maximum model length of 5", CONTEXT_EXHAUSTED),
        ("BadRequestError", 'AnthropicError - b\'{"error": {"message": "prompt is too long"}}\'', CONTEXT_EXHAUSTED),
        ("BadRequestError", "temperature is deprecated for this model", "bad_request"),
        ("BadRequestError", "Your credit balance is too low", "quota"),
        ("ContentPolicyViolationError", "no", FILTERED),
        ("AuthenticationError", "no", "authentication"),
        ("NotFoundError", "no", "not_found"),
        ("RateLimitError", "slow down", "rate_limited"),
        ("RateLimitError", "insufficient_quota", "quota"),
        ("Timeout", "late", "timeout"),
        ("ServiceUnavailableError", "no", "overloaded"),
        ("BadGatewayError", "no", "server_error"),
        ("InternalServerError", "AnthropicException - Server disconnected.", "connection"),
        ("InternalServerError", "Expecting value: line 1 column 1 (char 0)", "malformed_response"),
        ("APIConnectionError", "Connection error.", "connection"),
        ("APIConnectionError", "something", "connection"),
        ("UnsupportedParamsError", "p does not support parameters: ['top_k']", "bad_request"),
    ],
)
def test_the_meaning_of_each_class(name, message, kind):
    fault = read_error(made(name, message))
    assert fault.kind == kind
    assert fault.detail.startswith(f"{name}: ")


def test_what_litellm_itself_breaks_on_is_a_malformed_response():
    assert read_error(KeyError("choices")).kind == "malformed_response"
    assert read_error(ImportError("pip install boto3")).kind == "unavailable"


def test_the_providers_words_are_taken_out_of_their_wrapping():
    body = json.dumps({"error": {"type": "rate_limit_error", "message": "it's full"}}).replace("'", "\\'")
    message = f"AnthropicException - b'{body}'\nTraceback (most recent call last):\n  File \"/home/me/x.py\""
    fault = read_error(made("RateLimitError", message))
    assert fault.detail == "RateLimitError: it's full"


def test_the_wait_that_was_asked_for(monkeypatch):
    error = made("RateLimitError", "slow")
    monkeypatch.setattr(error, "litellm_response_headers", {"llm_provider-retry-after": "12"}, raising=False)
    assert read_error(error).retry_after_s == 12
