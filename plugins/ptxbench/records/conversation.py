"""What was said to a language model and what came back, whole, so that a turn can be audited and repeated."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from ptxbench.plain import whole
from ptxbench.records.base import Amount, Record, Sha256

MOST_TOKENS = 2**53
"""No call has more; beyond it a float no longer holds each number."""
MOST_DOLLARS = 1e6
"""No call costs so much."""


def possible_price(usd: float | None) -> float | None:
    """``usd``, or None where no call can have that price: negative, not a number, or beyond all bounds."""
    return usd if usd is not None and 0 <= usd < MOST_DOLLARS else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Words = Annotated[str, BeforeValidator(lambda value: whole(value) if isinstance(value, str) else value)]
"""A text of a provider. Whatever it holds, it can be stored."""
Dollars = Annotated[float | None, BeforeValidator(lambda value: possible_price(value) if _is_number(value) else value)]
"""A price that somebody states; one that cannot be counts as not told."""


class Message(Record):
    """One message of a conversation. A system message comes first, then user and assistant take turns."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Record):
    """Tokens of one call, as the provider counts them; None where it does not say.

    Counts that cannot be are as good as none, so that nobody saves a budget with them: a negative one, one beyond
    MOST_TOKENS, and both of a part and a whole where the part is larger.
    """

    input_tokens: int | None = None
    """All tokens of the prompt, cached ones included."""
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    """All generated tokens, reasoning included."""
    reasoning_tokens: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_what_can_be(cls, data: Any) -> Any:  # noqa: ANN401 - whatever somebody wrote
        if not isinstance(data, dict):
            return data
        counts = {name: None if _is_impossible(value) else value for name, value in data.items()}
        for part, total in (("cached_input_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
            few, many = counts.get(part), counts.get(total)
            if isinstance(few, int) and isinstance(many, int) and few > many:
                counts |= {part: None, total: None}
        return counts


def _is_impossible(count: object) -> bool:
    return isinstance(count, int) and not 0 <= count <= MOST_TOKENS


class Reply(Record):
    """What a model answered in one call."""

    text: Words
    """The visible answer, which code is taken from."""
    reasoning: Words = ""
    """Thinking that the provider returned apart from the answer. Kept for audit; never looked at for code."""
    source: Words | None = None
    """A kernel that was handed over as a file instead of in the text, as a coding agent does."""
    ended: Literal["stop", "output_limit", "filtered", "unknown"]
    finish_reason: Words
    """The provider's own word for it."""
    usage: Usage = Usage()
    cost_usd: Dollars = None
    """Price of the call in US dollars; None where no price is known."""
    cost_source: Literal["models_file", "provider", "price_map", "unknown"] = "unknown"
    latency_s: Amount
    """From the request to the last byte of the answer, without failed attempts."""
    model: Words
    """What answered, in the provider's words: an alias may be served by another version tomorrow."""
    response_id: Words = ""


class FailedAttempt(Record):
    """A call that brought no answer and was tried again."""

    kind: str
    """Of the error, for example ``rate_limited``."""
    message: str
    waited_s: Amount
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
    """Identity of a whole list of messages: of ``[[role, content], ...]`` as ASCII JSON."""
    whole = _begun(tuple(messages)).copy()
    whole.update(b"]")
    return whole.hexdigest()


_STATES: OrderedDict[tuple[Message, ...], hashlib._Hash] = OrderedDict()
_MOST_STATES = 64


def _begun(messages: tuple[Message, ...]) -> hashlib._Hash:
    """The hash of a list that is not closed yet.

    A turn's messages are those of the turn before it, an answer and what was said to that: hashing all of them again
    for every turn would be a third of what reading a finished run costs.
    """
    shorter = range(len(messages), max(len(messages) - 3, 0), -1)
    found = next(((length, state) for length in shorter if (state := _STATES.get(messages[:length]))), None)
    known, state = (found[0], found[1].copy()) if found is not None else (0, hashlib.sha256(b"["))
    for index in range(known, len(messages)):
        state.update(b", " if index else b"")
        state.update(json.dumps([messages[index].role, messages[index].content], ensure_ascii=True).encode())
    _STATES[messages] = state
    while len(_STATES) > _MOST_STATES:
        _STATES.popitem(last=False)
    return state
