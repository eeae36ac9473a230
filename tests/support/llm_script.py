"""What a scripted language-model server answers: each step is the answer to one request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

OPENAI, ANTHROPIC = "openai", "anthropic"
Events = list[tuple[str, bytes]]
"""Pieces of a stream: what each is (``start``, ``text``, ``end``) and its bytes."""


@dataclass(frozen=True)
class Answer:
    """A good answer, in whichever dialect and way (streamed or not) the request wants it."""

    text: str = ""
    reasoning: str = ""
    finish: str = "stop"
    """In OpenAI's words: ``stop``, ``length``, ``content_filter``."""
    input_tokens: int = 1000
    cached_tokens: int = 0
    output_tokens: int = 100
    reasoning_tokens: int = 0
    model: str = ""
    """Empty: the one that was asked for."""
    delay_s: float = 0.0
    """Before the first byte."""
    pieces: int = 4
    """Of the text, when it is streamed."""
    gap_s: float = 0.0
    """Before each piece of a stream: a slow one."""
    drop_after: int | None = None
    """Break the connection off after so many pieces of a stream, or in the middle of a body that is not streamed."""
    clean_drop: bool = False
    """End the stream in good form where it breaks off, as a proxy does whose server died."""
    reasoning_field: str = "reasoning_content"
    extra_usage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An HTTP error, or any other body with any status."""

    status: int
    body: Any
    """Bytes as they are, anything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass(frozen=True)
class Drop:
    """The connection ends before any byte of an answer."""

    delay_s: float = 0.0


@dataclass(frozen=True)
class Hang:
    """No byte, until the client gives up or the server closes."""


@dataclass(frozen=True)
class Raw:
    """A stream of exactly these bytes with status 200, ended in good form."""

    chunks: tuple[bytes, ...]
    content_type: str = "text/event-stream"


Step = Answer | Failure | Drop | Hang | Raw


def kernel(source: str = "// kernel\n", **changes: Any) -> Answer:
    """An answer that holds one kernel in a code block."""
    return replace(Answer(text=f"Here is the kernel.\n\n```cuda\n{source}```\n"), **changes)


def cut_off(source: str = "// half a ker", **changes: Any) -> Answer:
    """An answer that reached the output limit inside its code block."""
    return replace(Answer(text=f"```cuda\n{source}", finish="length"), **changes)


def rate_limited(retry_after: str | None = "0.05", **headers: str) -> Failure:
    """429, with Retry-After unless None."""
    all_headers = headers | ({"Retry-After": retry_after} if retry_after is not None else {})
    body = {"error": {"message": "Rate limit reached for requests", "type": "rate_limit_error", "code": "rate_limit"}}
    return Failure(429, body, {name.replace("_", "-"): value for name, value in all_headers.items()})


def quota_used_up() -> Failure:
    """429 as OpenAI says it when the account is empty."""
    message = "You exceeded your current quota, please check your plan and billing details."
    return Failure(429, {"error": {"message": message, "type": "insufficient_quota", "code": "insufficient_quota"}})


def server_error(status: int = 500) -> Failure:
    """The server's own fault."""
    return Failure(status, {"error": {"message": "The server had an error", "type": "server_error", "code": None}})


def overloaded() -> Failure:
    """529 as Anthropic says it."""
    return Failure(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def unauthorized(key: str = "") -> Failure:
    """401 that quotes the key, as some servers do."""
    message = f"Incorrect API key provided: {key}. Sent as Authorization: Bearer {key}"
    return Failure(401, {"error": {"message": message, "type": "invalid_request_error", "code": "invalid_api_key"}})


def malformed() -> Failure:
    """Status 200 and half a JSON object."""
    return Failure(200, b'{"choices": [{"message": {"content": "half')


CONTEXT_STYLES = ("openai", "vllm", "vllm_new", "sglang", "anthropic", "anthropic_sum")


def context_length(style: str = "openai") -> Failure:
    """The conversation does not fit, in the words of ``style`` (one of CONTEXT_STYLES)."""
    limit = "This model's maximum context length is 4096 tokens."
    vllm = f"{limit} However, you requested 9000 tokens (8000 in the messages, 1000 in the completion)."
    messages = {
        "openai": f"{limit} However, your messages resulted in 9000 tokens.",
        "vllm": f"{vllm} Please reduce the length of the messages or completion.",
        "vllm_new": "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "sglang": "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
        "anthropic": "prompt is too long: 209000 tokens > 200000 maximum",
        "anthropic_sum": "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000",
    }
    error: dict[str, Any] = {"type": "invalid_request_error", "message": messages[style]}
    if style.startswith("anthropic"):
        return Failure(400, {"type": "error", "error": error})
    if style in ("vllm", "sglang"):
        return Failure(400, {"object": "error", "type": "BadRequestError", "code": 400, "message": error["message"]})
    if style == "vllm_new":
        return Failure(400, {"error": {"type": "BadRequestError", "code": 400, "message": error["message"]}})
    return Failure(400, {"error": error | {"param": "messages", "code": "context_length_exceeded"}})


def whole_body(answer: Answer, model: str, dialect: str) -> bytes:
    """The answer as one JSON object."""
    model = answer.model or model
    if dialect == ANTHROPIC:
        thoughts = [{"type": "thinking", "thinking": answer.reasoning, "signature": "c2ln"}] if answer.reasoning else []
        data: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [*thoughts, {"type": "text", "text": answer.text}],
            "stop_reason": _anthropic_reason(answer),
            "stop_sequence": None,
            "usage": _anthropic_usage(answer),
        }
    else:
        message = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message[answer.reasoning_field] = answer.reasoning
        choice = {"index": 0, "message": message, "finish_reason": answer.finish}
        data = _openai_frame("chat.completion", model) | {"choices": [choice], "usage": _openai_usage(answer)}
    return json.dumps(data, ensure_ascii=False).encode()


def stream_events(answer: Answer, model: str, dialect: str, *, with_usage: bool) -> Events:
    """The answer as server-sent events."""
    model = answer.model or model
    return _anthropic_events(answer, model) if dialect == ANTHROPIC else _openai_events(answer, model, with_usage)


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _openai_frame(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_780_000_000, "model": model}


def _openai_usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        **answer.extra_usage,
    }


def _openai_events(answer: Answer, model: str, with_usage: bool) -> Events:
    frame = _openai_frame("chat.completion.chunk", model)

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(frame | {"choices": [choice], "usage": None})

    events = [("start", event({"role": "assistant", "content": ""}))]
    events += [("text", event({answer.reasoning_field: piece})) for piece in _split(answer.reasoning, 2)]
    events += [("text", event({"content": piece})) for piece in _split(answer.text, answer.pieces)]
    events.append(("end", event({}, answer.finish)))
    if with_usage:
        events.append(("end", _event(frame | {"choices": [], "usage": _openai_usage(answer)})))
    return [*events, ("end", b"data: [DONE]\n\n")]


def _anthropic_reason(answer: Answer) -> str:
    return {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(answer.finish, answer.finish)


def _anthropic_usage(answer: Answer) -> dict[str, Any]:
    """Anthropic counts cached tokens apart from ``input_tokens``."""
    return {
        "input_tokens": answer.input_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.output_tokens,
        **answer.extra_usage,
    }


def _anthropic_events(answer: Answer, model: str) -> Events:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = _anthropic_usage(answer)
    message = start | {"stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}
    events = [("start", _event({"type": "message_start", "message": message}))]
    blocks = [("thinking", answer.reasoning, 2)] if answer.reasoning else []
    for index, (kind, text, pieces) in enumerate([*blocks, ("text", answer.text, answer.pieces)]):
        block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        events.append(("start", _event({"type": "content_block_start", "index": index, "content_block": block})))
        for piece in _split(text, pieces):
            part = {"type": f"{kind}_delta", kind: piece}
            events.append(("text", _event({"type": "content_block_delta", "index": index, "delta": part})))
        events.append(("end", _event({"type": "content_block_stop", "index": index})))
    end = {"stop_reason": _anthropic_reason(answer), "stop_sequence": None}
    events.append(("end", _event({"type": "message_delta", "delta": end, "usage": usage})))
    return [*events, ("end", _event({"type": "message_stop"}))]


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
