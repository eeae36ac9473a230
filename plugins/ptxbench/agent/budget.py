"""What model calls cost, and when to stop issuing them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ptxbench.agent.store import ASKED, RunStore
from ptxbench.models.entry import Prices
from ptxbench.models.pricing import price
from ptxbench.packs import estimate_tokens
from ptxbench.records import Message, PendingReply, Reply, TurnRecord


class Spent(NamedTuple):
    """What calls took."""

    usd: float = 0.0
    tokens: int = 0
    """Input, cached or not, and output."""

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.usd + other.usd, self.tokens + other.tokens)

    def minus(self, other: Spent) -> Spent:
        """The difference."""
        return Spent(self.usd - other.usd, self.tokens - other.tokens)


def total(amounts: Iterable[Spent]) -> Spent:
    """All of them together."""
    return Spent(*map(sum, zip(Spent(), *amounts, strict=True)))


class Limits(NamedTuple):
    """How much may be spent; None: no limit."""

    usd: float | None = None
    tokens: int | None = None

    def less(self, spent: Spent, parts: int = 1) -> Limits:
        """An equal part of what is left."""
        return Limits(
            None if self.usd is None else (self.usd - spent.usd) / parts,
            None if self.tokens is None else (self.tokens - spent.tokens) // parts,
        )


NO_LIMITS = Limits()


class Budget:
    """What this process may spend from now on. Safe for several threads.

    Calls that were issued before a limit was reached finish, so it may be overrun by as many as run at once. ``names``
    are how the limits are called in messages.
    """

    def __init__(
        self, limits: Limits = NO_LIMITS, names: tuple[str, str] = ("the budget in US dollars", "the budget in tokens")
    ) -> None:
        self._limits = limits
        self._names = names
        self._spent = Spent()
        self._lock = threading.Lock()

    def add(self, spent: Spent) -> None:
        """Count a call."""
        with self._lock:
            self._spent = self._spent.plus(spent)

    def exhausted(self) -> str:
        """Why no further call may be issued; empty while one may be."""
        with self._lock:
            spent = self._spent
        for limit, amount, name in zip(self._limits, spent, self._names, strict=True):
            if limit is not None and amount >= limit:
                return f"{name} is reached, so the model is asked for no further turn; resume the run with more"
        return ""


def spent_on(reply: Reply, prompt: Iterable[Message], prices: Prices | None) -> Spent:
    """What one call took. Where the provider does not count tokens they are estimated from the texts."""
    usage, said = reply.usage, (reply.text, reply.reasoning, reply.source or "")
    taken, given = usage.input_tokens, usage.output_tokens
    if taken is None:
        taken = sum(estimate_tokens(message.content) for message in prompt)
    if given is None:
        given = sum(map(estimate_tokens, said))
    usd = reply.cost_usd
    if usd is None and prices is not None:
        usd = price(prices, usage.model_copy(update={"input_tokens": taken, "output_tokens": given}))
    return Spent(usd or 0.0, taken + given)


def spent_in(store: RunStore, prices: Mapping[str, Prices | None]) -> dict[str, Spent]:
    """What earlier sessions of a run spent, by trajectory; replies whose turn is not finished are included."""
    spent: defaultdict[str, Spent] = defaultdict(Spent)
    said: defaultdict[str, list[Message]] = defaultdict(list)
    for stored in store.turns():
        record = stored.record
        trajectory = record.key.trajectory_id
        spent[trajectory] = spent[trajectory].plus(_turn(record, said[trajectory], prices.get(record.key.model)))
    for pending in store.pending_replies():
        trajectory = pending.key.trajectory_id
        spent[trajectory] = spent[trajectory].plus(_pending(pending, said[trajectory], prices.get(pending.key.model)))
    return dict(spent)


def _turn(record: TurnRecord, said: list[Message], prices: Prices | None) -> Spent:
    """What a turn took; ``said`` is the conversation so far and grows by it."""
    exchange = record.exchange
    if exchange is None or exchange.reply is None or record.origin != ASKED:
        return Spent()
    said += exchange.added
    spent = spent_on(exchange.reply, said, prices)
    said.append(Message(role="assistant", content=exchange.reply.text))
    return spent


def _pending(pending: PendingReply, said: Sequence[Message], prices: Prices | None) -> Spent:
    reply = pending.exchange.reply
    return Spent() if reply is None else spent_on(reply, [*said, *pending.exchange.added], prices)
