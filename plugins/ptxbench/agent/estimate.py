"""What a run would take, estimated before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from ptxbench.agent.dialogue import answer
from ptxbench.agent.store import ASKED, RunStore
from ptxbench.models.entry import ModelEntry
from ptxbench.models.pricing import price
from ptxbench.packs import estimate_tokens
from ptxbench.records import TurnRecord, Usage

REPLY_TOKENS = 9_000
"""A kernel with a few sentences around it: what a reply adds to every later prompt. An assumption: the reference
solutions have 6,000 to 9,600 tokens."""
OUTPUT_TOKENS = (REPLY_TOKENS, 40_000)
"""Generated per reply, without reasoning and with much of it. An assumption; bounded by the model's output limit."""
FEEDBACK_TOKENS = 1_000
"""What the feedback on a turn adds to the next prompt. An assumption."""


class Sizes(NamedTuple):
    """Tokens per turn, assumed or measured."""

    reply: int = REPLY_TOKENS
    feedback: int = FEEDBACK_TOKENS
    output: tuple[int, int] = OUTPUT_TOKENS
    """At least and at most."""
    turns: int = 0
    """How many turns this was measured on; 0: assumed."""

    def bounded(self, entry: ModelEntry) -> Sizes:
        """No more than the model's output limit allows."""
        limit = entry.max_output_tokens
        if limit is None:
            return self
        least, most = self.output
        return self._replace(reply=min(self.reply, limit), output=(min(least, limit), min(most, limit)))


class Estimate(NamedTuple):
    """Tokens and cost of some calls."""

    calls: int = 0
    input_tokens: int = 0
    """Of all calls together, if every turn happens."""
    cached_tokens: int = 0
    """Of these, what a provider that caches prompts has seen in the turn before."""
    output_tokens: tuple[int, int] = (0, 0)
    usd: tuple[float, float] | None = (0.0, 0.0)
    """At least (everything cached, least output) and at most; None where no price is known."""

    def plus(self, other: Estimate) -> Estimate:
        """Both together."""
        usd = None
        if self.usd is not None and other.usd is not None:
            usd = (self.usd[0] + other.usd[0], self.usd[1] + other.usd[1])
        return Estimate(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            (self.output_tokens[0] + other.output_tokens[0], self.output_tokens[1] + other.output_tokens[1]),
            usd,
        )


def measured(store: RunStore, model: str) -> Sizes:
    """The averages over the turns that a run already has of a model; the assumptions where it has none."""
    records = [stored.record for stored in store.turns() if stored.record.key.model == model]
    asked = [record for record in records if record.origin == ASKED and record.exchange and record.exchange.reply]
    if not asked:
        return Sizes()
    outputs = list(map(_output, asked))
    later = [record for record in asked if record.follows is not None]
    return Sizes(
        reply=round(fmean(map(_reply, asked))),
        feedback=round(fmean(map(_added, later))) if later else FEEDBACK_TOKENS,
        output=(round(fmean(outputs)), max(outputs)),
        turns=len(asked),
    )


def trajectory(entry: ModelEntry, prompt: int, turns: Iterable[int], sizes: Sizes) -> Estimate:
    """The calls of these turns of a trajectory whose first prompt has ``prompt`` tokens, if each of them happens."""
    sizes = sizes.bounded(entry)
    inputs = cached = 0
    numbers = list(turns)
    for turn in numbers:
        grown = sizes.reply + sizes.feedback
        inputs += prompt + turn * grown
        cached += prompt + (turn - 1) * grown if turn else 0
    outputs = (sizes.output[0] * len(numbers), sizes.output[1] * len(numbers))
    return Estimate(len(numbers), inputs, cached, outputs, _usd(entry, inputs, cached, outputs))


def prompt_tokens(texts: Sequence[str]) -> int:
    """Tokens of a prompt."""
    return sum(map(estimate_tokens, texts))


def _usd(entry: ModelEntry, inputs: int, cached: int, outputs: tuple[int, int]) -> tuple[float, float] | None:
    if entry.prices is None:
        return None
    least = price(entry.prices, Usage(input_tokens=inputs, cached_input_tokens=cached, output_tokens=outputs[0]))
    most = price(entry.prices, Usage(input_tokens=inputs, output_tokens=outputs[1]), cache_write_tokens=inputs)
    assert least is not None
    assert most is not None
    return least, most


def _output(record: TurnRecord) -> int:
    assert record.exchange is not None
    assert record.exchange.reply is not None
    reply = record.exchange.reply
    counted = reply.usage.output_tokens
    return estimate_tokens(reply.text + reply.reasoning) if counted is None else counted


def _reply(record: TurnRecord) -> int:
    assert record.exchange is not None
    assert record.exchange.reply is not None
    return estimate_tokens(answer(record.exchange.reply))


def _added(record: TurnRecord) -> int:
    assert record.exchange is not None
    return sum(estimate_tokens(message.content) for message in record.exchange.added)
