"""Answers of an OpenAI-compatible server, whole or in pieces, read strictly: what is not whole is not an answer."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from ptxbench.models.client import ModelError
from ptxbench.models.pricing import Cost
from ptxbench.models.secrets import Scrubber
from ptxbench.records import Reply, Usage
from ptxbench.records.conversation import possible_price

Ended = Literal["stop", "output_limit", "filtered", "unknown"]

_ENDED: dict[str, Ended] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "length": "output_limit",
    "max_tokens": "output_limit",
    "content_filter": "filtered",
    "refusal": "filtered",
    "sensitive": "filtered",
}
_BROKEN_OFF = frozenset({"abort", "aborted", "error", "network_error"})
"""Servers that lose a request on their side still end it in good form."""


class Answer(NamedTuple):
    """What a server answered, before price and latency."""

    text: str
    reasoning: str
    finish_reason: str
    usage: Usage
    model: str
    response_id: str
    cache_write_tokens: int = 0
    stated_cost: float | None = None

    def reply(self, *, price: Cost, latency_s: float, model: str, scrub: Scrubber) -> Reply:
        """As records keep it, without the key, which some servers echo; ``model`` where the server names none."""
        return Reply(
            text=scrub.answer(self.text),
            reasoning=scrub.answer(self.reasoning),
            ended=ended(self.finish_reason),
            finish_reason=scrub.answer(self.finish_reason),
            usage=self.usage,
            cost_usd=price.usd,
            cost_source=price.source,
            latency_s=latency_s,
            model=scrub.answer(self.model) or model,
            response_id=scrub.answer(self.response_id),
        )


def ended(finish_reason: str) -> Ended:
    """How the answer ended, in our words."""
    return _ENDED.get(finish_reason.lower(), "unknown")


def read_json(text: str, what: str) -> dict[str, Any]:
    """A JSON object. Raises ModelError ``malformed_response``."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(f"{what}: expected JSON ({error}), found {_shown(text)}") from None
    if not isinstance(data, dict):
        raise malformed(f"{what}: expected a JSON object, found {_shown(text)}")
    return data


def read_answer(data: dict[str, Any]) -> Answer:
    """A whole answer of ``/chat/completions``. Raises ModelError."""
    choice = _choice(data)
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        raise malformed(f"expected choices with a message, found {_shown(json.dumps(data))}")
    assembly = Assembly()
    assembly.add_parts(data, choice, message)
    return assembly.answer()


class Assembly:
    """Puts the pieces of a stream together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish_reason = ""
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._id = ""

    @property
    def finished(self) -> bool:
        """Whether the server has said how the answer ended."""
        return bool(self._finish_reason)

    def add(self, data: dict[str, Any]) -> None:
        """The next piece. Raises ModelError ``malformed_response``."""
        choice = _choice(data)
        delta = choice.get("delta") if choice else None
        if choice is not None and not isinstance(delta, dict | None):
            raise malformed(f"expected a delta in each piece of a stream, found {_shown(json.dumps(data))}")
        self.add_parts(data, choice or {}, delta or {})

    def add_parts(self, data: dict[str, Any], choice: dict[str, Any], message: dict[str, Any]) -> None:
        """A piece or a whole answer, taken apart."""
        self._text.append(_words(message.get("content")) or _words(message.get("refusal")))
        # vLLM and others say reasoning_content; newer vLLM and OpenRouter say reasoning, some both with one text.
        self._reasoning.append(_words(message.get("reasoning_content")) or _words(message.get("reasoning")))
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self._finish_reason = reason
        if isinstance(usage := data.get("usage"), dict):
            self._usage = usage
        self._model = self._model or _word(data.get("model"))
        self._id = self._id or _word(data.get("id"))

    def answer(self) -> Answer:
        """All pieces as one. Raises ModelError ``connection`` where the end is missing."""
        text = "".join(self._text)
        if not self._finish_reason:
            raise ModelError("connection", f"expected a finish_reason, found none after {len(text)} characters")
        if self._finish_reason.lower() in _BROKEN_OFF:
            raise ModelError(
                "server_error", f"the server broke off after {len(text)} characters: {self._finish_reason}"
            )
        usage = self._usage
        return Answer(
            text=text,
            reasoning="".join(self._reasoning),
            finish_reason=self._finish_reason,
            usage=read_usage(usage),
            model=self._model,
            response_id=self._id,
            cache_write_tokens=max(0, _count(_inner(usage, "prompt_tokens_details"), "cache_write_tokens") or 0),
            stated_cost=_stated(usage),
        )


def read_usage(usage: dict[str, Any]) -> Usage:
    """Tokens as the server counts them; whatever it does not say in a sound way is None (see Usage)."""
    details = _inner(usage, "completion_tokens_details")
    cached = _count(_inner(usage, "prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens")  # DeepSeek
    reasoning = _count(details, "reasoning_tokens")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        cached_input_tokens=cached,
        output_tokens=_count(usage, "completion_tokens"),
        reasoning_tokens=_count(usage, "reasoning_tokens") if reasoning is None else reasoning,  # SGLang: at the top
    )


def malformed(message: str) -> ModelError:
    """The error for an answer that is none."""
    return ModelError("malformed_response", message)


def _choice(data: dict[str, Any]) -> dict[str, Any] | None:
    """The choice that we asked for: of several the one numbered 0, which is also what one without a number is."""
    choices = data.get("choices")
    found = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    return next((choice for choice in found if choice.get("index", 0) in (0, None)), None)


def _words(value: object) -> str:
    """Text, also where it comes as a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_words(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _inner(usage: dict[str, Any], name: str) -> dict[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _count(values: dict[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stated(usage: dict[str, Any]) -> float | None:
    """OpenRouter and some gateways state the price of a call, in US dollars."""
    value = usage.get("cost")
    return possible_price(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shown(text: str) -> str:
    """Quoted; whoever raises it to the user removes credentials, then cuts."""
    return repr(" ".join(text[:20_000].split()))
