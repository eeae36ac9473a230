"""What asking language models took: tokens, money and time over turns. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from ptxbench.records import Record, Reply, TurnRecord
from ptxbench.records.base import Amount, Count


class Calls(Record):
    """The calls behind some turns. Failed attempts are counted apart; what a provider does not say is in no sum."""

    calls: Count
    input_tokens: Count
    """Cached ones included."""
    cached_input_tokens: Count
    output_tokens: Count
    """Reasoning included."""
    reasoning_tokens: Count
    uncounted: Count
    """Calls whose provider did not count tokens."""
    cost_usd: Amount
    unpriced: Count
    """Calls whose cost nobody knows."""
    latency_s: Amount
    """Sum over the calls, which may have overlapped."""
    median_latency_s: Amount
    failed_attempts: Count
    """Calls that brought no answer and were tried again, with success."""
    truncated: Count
    """Replies that ended at the output limit."""
    filtered: Count
    """Replies that the provider withheld."""


def calls_of(records: Iterable[TurnRecord]) -> Calls | None:
    """The calls that these turns rest on; None if there was none."""
    exchanges = [record.exchange for record in records if record.exchange is not None]
    replies = [exchange.reply for exchange in exchanges if exchange.reply is not None]
    if not replies:
        return None
    usages = [reply.usage for reply in replies]
    return Calls(
        calls=len(replies),
        input_tokens=sum(usage.input_tokens or 0 for usage in usages),
        cached_input_tokens=sum(usage.cached_input_tokens or 0 for usage in usages),
        output_tokens=sum(usage.output_tokens or 0 for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens or 0 for usage in usages),
        uncounted=sum(usage.input_tokens is None or usage.output_tokens is None for usage in usages),
        cost_usd=sum(reply.cost_usd or 0.0 for reply in replies),
        unpriced=sum(reply.cost_usd is None for reply in replies),
        latency_s=sum(reply.latency_s for reply in replies),
        median_latency_s=statistics.median(reply.latency_s for reply in replies),
        failed_attempts=sum(len(exchange.attempts) for exchange in exchanges),
        truncated=_ended(replies, "output_limit"),
        filtered=_ended(replies, "filtered"),
    )


def _ended(replies: Iterable[Reply], how: str) -> int:
    return sum(reply.ended == how for reply in replies)


def count_of(number: int, noun: str) -> str:
    """Return ``1 turn`` or ``2 turns``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short_count(number: int) -> str:
    """Return a number of tokens in a few characters: ``950``, ``9.5k``, ``95k``, ``1.25M``."""
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1e3:.1f}k" if number < 9_950 else f"{number / 1e3:.0f}k"
    return f"{number / 1e6:.2f}M"


def money(calls: Calls) -> str:
    """Return the cost in US dollars; a plus says that some calls have no known cost, a question mark that none has."""
    if calls.unpriced == calls.calls:
        return "?"
    return f"{calls.cost_usd:.{2 if calls.cost_usd >= 1 else 4}f}" + ("+" if calls.unpriced else "")


def describe_left_over(replies: Sequence[Reply]) -> list[str]:
    """Return one sentence about replies that no turn is made of; none where there is no such reply."""
    if not replies:
        return []
    known = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    cost = f"USD {sum(known):.4f}" + ("+" if len(known) < len(replies) else "") if known else "USD ?"
    are = "1 reply that no turn is" if len(replies) == 1 else f"{len(replies)} replies that no turn is"
    return [
        f"Beside these calls the run holds {are} made of, {cost} (replies/): budgets count them, the table does not."
    ]


def describe_calls(calls: Calls) -> str:
    """Return one sentence about calls, without a full stop."""
    cost = f"USD {money(calls)}, median call {calls.median_latency_s:.1f} s"
    if calls.uncounted == calls.calls:
        return f"{count_of(calls.calls, 'model call')} without token counts, {cost}"
    cached = f" ({short_count(calls.cached_input_tokens)} cached)" if calls.cached_input_tokens else ""
    tokens = f"{short_count(calls.input_tokens)} input{cached} and {short_count(calls.output_tokens)} output tokens"
    texts = [f"{count_of(calls.calls, 'model call')}, {tokens}, {cost}"]
    if calls.uncounted:
        texts.append(f"{count_of(calls.uncounted, 'call')} without a token count")
    return ", ".join(texts)
