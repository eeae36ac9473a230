"""What was said to a language model and what came back, whole, so that a turn can be audited and repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, JsonValue

from ptxbench.records.base import Record, Sha256


class Message(Record):
    """One message of a conversation. A system message comes first, then user and assistant take turns."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Record):
    """Tokens of one call, as the provider counts them; None where it does not say."""

    input_tokens: int | None = None
    """All tokens of the prompt, cached ones included."""
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    """All generated tokens, reasoning included."""
    reasoning_tokens: int | None = None


class Reply(Record):
    """What a model answered in one call."""

    text: str
    """The visible answer, which code is taken from."""
    reasoning: str = ""
    """Thinking that the provider returned apart from the answer. Kept for audit; never looked at for code."""
    source: str | None = None
    """A kernel that was handed over as a file instead of in the text, as a coding agent does."""
    ended: Literal["stop", "output_limit", "filtered", "unknown"]
    finish_reason: str
    """The provider's own word for it."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """Price of the call in US dollars; None where no price is known."""
    cost_source: Literal["models_file", "provider", "price_map", "unknown"] = "unknown"
    latency_s: float
    """From the request to the last byte of the answer, without failed attempts."""
    model: str
    """What answered, in the provider's words: an alias may be served by another version tomorrow."""
    response_id: str = ""


class FailedAttempt(Record):
    """A call that brought no answer and was tried again."""

    kind: str
    """Of the error, for example ``rate_limited``."""
    message: str
    waited_s: float
    """Pause before the next attempt."""


class PromptIdentity(Record):
    """Which texts a prompt was assembled from."""

    template: str
    """Version of our own instructions."""
    pack: str
    """Name and version of the knowledge pack."""
    pack_sha256: Sha256
    """Of the pack's text as it was sent."""
    level: Literal["params", "templates", "full"]


class Exchange(Record):
    """One call of a model within a trajectory.

    Only the messages that this turn added are kept: those before them lie in the records of the earlier turns, with
    their replies between. ``prompt_sha256`` proves that nothing else was sent.
    """

    added: tuple[Message, ...]
    prompt_sha256: Sha256
    prompt: PromptIdentity
    sent: dict[str, JsonValue] = Field(default_factory=dict)
    """Everything in the request beside the messages and the credentials: provider, model, settings."""
    asked_at: str
    """UTC, ISO 8601."""
    attempts: tuple[FailedAttempt, ...] = ()
    reply: Reply | None
    """None where the conversation no longer fits the model's context."""


def prompt_sha256(messages: Sequence[Message]) -> str:
    """Identity of a whole list of messages."""
    text = json.dumps([[message.role, message.content] for message in messages], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
