"""A conversation put together again from the records of its turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ptxbench.models import PastTurn
from ptxbench.records import Exchange, Message, PromptIdentity, Reply, TurnRecord, prompt_sha256

NOTHING_SAID = "(no answer)"
"""Stands for an answer without any text, since providers refuse empty messages."""


class Dialogue(NamedTuple):
    """A prompt: what was said in earlier turns, and what this turn adds."""

    before: tuple[Message, ...]
    added: tuple[Message, ...]
    prompt: PromptIdentity
    """Of the texts that its first messages were assembled from, which may be those of an earlier session."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of it."""
        return self.before + self.added


def said(last: PastTurn, history: Sequence[PastTurn], opening: Sequence[Message]) -> tuple[Message, ...]:
    """Everything said up to and with the answer of ``last``, in the words of the records.

    ``opening`` stands in for the prompt of a turn that had none, since its source came from elsewhere.
    """
    messages: list[Message] = []
    for past in chain(last, history):
        exchange = past.record.exchange
        if exchange is None or exchange.reply is None:
            messages += [] if messages else opening
            messages += [
                Message(role="assistant", content=NOTHING_SAID if past.source is None else fenced(past.source))
            ]
        else:
            messages += exchange.added
            messages.append(Message(role="assistant", content=answer(exchange.reply)))
    return tuple(messages)


def chain(last: PastTurn, history: Sequence[PastTurn]) -> list[PastTurn]:
    """The turns of the conversation that ends with the answer of ``last``, in order."""
    turns = {past.record.key.turn: past for past in history}
    found: list[PastTurn] = []
    link: PastTurn | None = last
    while link is not None:
        found.append(link)
        before = _before(link.record)
        link = turns.get(before) if before is not None else None
    return found[::-1]


def begun_with(last: PastTurn, history: Sequence[PastTurn]) -> PromptIdentity | None:
    """Which texts the conversation of ``last`` began with; None where a record does not say."""
    exchange = chain(last, history)[0].record.exchange
    return exchange.prompt if exchange is not None else None


def departure(record: TurnRecord, find: Callable[[int], PastTurn | None]) -> str:
    """Why a stored turn does not belong to the conversation that is stored before it; empty where it does.

    ``find`` gives the stored turn of a number. The hash of the prompt says what the model was really told.
    """
    exchange = record.exchange
    if exchange is None or exchange.reply is None:
        return ""
    before: list[PastTurn] = []
    number = _before(record)
    while number is not None:
        past = find(number)
        if past is None:
            return f"it answers a conversation with turn {number}, which is not stored"
        before.append(past)
        number = _before(past.record)
    messages = said(before[0], before, ()) if before else ()
    if prompt_sha256([*messages, *exchange.added]) == exchange.prompt_sha256:
        return ""
    return "it answers another conversation than the one that is stored before it"


def followed(exchange: Exchange, history: Sequence[PastTurn]) -> int | None:
    """The turn whose answer the messages of a call follow: the last one whose conversation its hash proves.

    Where none does, as in records that were edited, the last one.
    """
    for past in reversed(history):
        if prompt_sha256([*said(past, history, ()), *exchange.added]) == exchange.prompt_sha256:
            return past.record.key.turn
    if not history or prompt_sha256(exchange.added) == exchange.prompt_sha256:
        return None
    return history[-1].record.key.turn


def answer(reply: Reply) -> str:
    """What a reply said, as later prompts repeat it: its text, and the kernel that was handed over as a file."""
    if reply.source is None:
        return reply.text if reply.text.strip() else NOTHING_SAID
    return "\n\n".join(filter(None, (reply.text.strip(), fenced(reply.source))))


def fenced(source: str) -> str:
    """A kernel as an answer holds it: the instructions ask for one block."""
    return f"```cuda\n{source.rstrip()}\n```"


def _before(record: TurnRecord) -> int | None:
    """The turn that this one's messages follow. Always an earlier one, whatever a file says."""
    follows = record.follows
    return follows if follows is not None and follows < record.key.turn else None
