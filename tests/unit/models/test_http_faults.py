"""What providers' errors mean."""

import email.utils
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.models.client import CANCELLED, CONTEXT_EXHAUSTED, LASTING, REFUSED, TRANSIENT
from ptxbench.models.http_faults import FILTERED, error_words, read_fault, read_fault_in_stream, retry_after
from tests.support.llm_script import CONTEXT_STYLES, Failure, context_length


def body(message: str, **fields: object) -> str:
    return json.dumps({"error": {"message": message} | fields})


def kind(failure: Failure) -> str:
    return read_fault(failure.status, {}, json.dumps(failure.body)).kind


@pytest.mark.parametrize("style", CONTEXT_STYLES)
def test_a_full_context_is_known_in_each_style(style):
    assert kind(context_length(style)) == CONTEXT_EXHAUSTED


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, body("Your input exceeds the context window of this model. Please adjust your input and try again.")),
        (
            400,
            body("'max_tokens' is too large: 8000. This model's maximum context length is 4096"),
        ),
        (400, body("Requested token count exceeds the model's maximum context length of 4096 tokens.")),
        (
            400,
            json.dumps(
                [
                    {
                        "error": {
                            "code": 400,
                            "message": "The input token count (2) exceeds the maximum number of tokens allowed (1).",
                        }
                    }
                ]
            ),
        ),
        (400, json.dumps({"code": "InvalidParameter", "message": "Range of input length should be [1, 98304]"})),
        (422, json.dumps({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"})),
        (
            500,
            json.dumps(
                {"error": {"message": "the request exceeds the available context size", "type": "server_error"}}
            ),
        ),
        (400, body("Invalid request: Your request exceeded model token limit: 262144")),
        (400, "plain words: prompt is too long"),
        (413, body("prompt is too long: 3 tokens > 2 maximum")),
    ],
)
def test_a_full_context_in_other_words(status, text):
    assert read_fault(status, {}, text).kind == CONTEXT_EXHAUSTED


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, body("temperature: Input should be less than 2"), "bad_request"),
        (400, "", "bad_request"),
        (401, body("prompt is too long"), "authentication"),
        (402, body("Insufficient Balance"), "quota"),
        (403, body("Country not supported"), "authentication"),
        (403, body("Your organization is out of credits"), "quota"),
        (404, body("The model `gpt-9` does not exist", code="model_not_found"), "not_found"),
        (408, "", "timeout"),
        (413, "<html>Request Entity Too Large</html>", "context_exhausted"),
        (429, body("Rate limit reached for gpt-5 on tokens per min: Limit 30000"), "rate_limited"),
        (429, body("You exceeded your current quota", type="insufficient_quota"), "quota"),
        (429, body("Maximum context length of the queue"), "rate_limited"),
        (400, body("Your credit balance is too low to access the Anthropic API."), "quota"),
        (400, body("filtered", code="content_filter"), FILTERED),
        (400, body("Invalid prompt: your prompt was flagged as potentially violating our usage policy."), FILTERED),
        (500, body("internal error"), "server_error"),
        (502, "<html>Bad Gateway</html>", "server_error"),
        (503, "", "overloaded"),
        (504, "", "server_error"),
        (520, "", "server_error"),
        (529, body("Overloaded", type="overloaded_error"), "overloaded"),
        (500, body("Overloaded", type="overloaded_error"), "overloaded"),
    ],
)
def test_the_meaning_of_a_status(status, text, expected):
    assert read_fault(status, {}, text).kind == expected


def test_a_limit_per_minute_that_is_called_a_quota_is_a_rate_limit():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    text = body("You exceeded your current quota, please check your plan", status="RESOURCE_EXHAUSTED", details=details)
    fault = read_fault(429, {}, text)
    assert (fault.kind, fault.retry_after_s) == ("rate_limited", 34.5)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_how_long_to_wait(headers, expected):
    assert retry_after(headers) == expected


def test_a_date_to_wait_for():
    seconds = retry_after({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)})
    assert seconds is not None
    assert 95 < seconds <= 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (body("Overloaded", type="overloaded_error"), "overloaded"),
        (body("slow down", type="rate_limit_error"), "rate_limited"),
        (body("maximum context length is 5", code=400), CONTEXT_EXHAUSTED),
        (body("bad", code=400), "bad_request"),
        (json.dumps({"object": "error", "message": "died", "code": 500}), "server_error"),
        (body("something"), "server_error"),
    ],
)
def test_an_error_inside_a_stream(text, expected):
    assert read_fault_in_stream(text).kind == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (body("m", type="t", code=5), ("t 5", "m")),
        ('{"detail": "not here"}', ("", "not here")),
        ('{"error": "gone"}', ("", "gone")),
        ('[{"error": {"message": "m", "status": "S"}}]', ("S", "m")),
        ("[]", ("", "[]")),
        ("a\n  b", ("", "a b")),
        ("3", ("", "3")),
    ],
)
def test_the_words_of_an_error(text, expected):
    assert error_words(text) == expected


@given(st.integers(400, 599), st.text())
def test_any_error_has_a_meaning(status, text):
    fault = read_fault(status, {}, text)
    assert fault.kind in TRANSIENT | LASTING | REFUSED | {CONTEXT_EXHAUSTED, FILTERED}
    assert fault.kind != CANCELLED
