"""A conversation put together again from the records of its turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ptxbench.models import PastTurn
from ptxbench.records import Message, Reply, TurnRecord

NOTHING_SAID = "(no answer)"
"""Stands for an answer without any text, since providers refuse empty messages."""


class Dialogue(NamedTuple):
    """A prompt: what was said in earlier turns, and what this turn adds."""

    before: tuple[Message, ...]
    added: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of it."""
        return self.before + self.added


def said(last: PastTurn, history: Sequence[PastTurn], opening: Sequence[Message]) -> tuple[Message, ...]:
    """Everything said up to and with the answer of ``last``, in the words of the records.

    ``opening`` stands in for the prompt of a turn that had none, since its source came from elsewhere.
    """
    turns = {past.record.key.turn: past for past in history}
    chain: list[PastTurn] = []
    link: PastTurn | None = last
    while link is not None:
        chain.append(link)
        before = _before(link.record)
        link = turns.get(before) if before is not None else None
    messages: list[Message] = []
    for past in reversed(chain):
        exchange = past.record.exchange
        if exchange is None or exchange.reply is None:
            messages += [] if messages else opening
            messages += [Message(role="assistant", content=_fenced(past.source))]
        else:
            messages += exchange.added
            messages.append(Message(role="assistant", content=answer(exchange.reply)))
    return tuple(messages)


def answer(reply: Reply) -> str:
    """What a reply said, as later prompts repeat it: its text, and the kernel that was handed over as a file."""
    if reply.source is None:
        return reply.text if reply.text.strip() else NOTHING_SAID
    return "\n\n".join(filter(None, (reply.text.strip(), _fenced(reply.source))))


def _before(record: TurnRecord) -> int | None:
    """The turn that this one's messages follow. Always an earlier one, whatever a file says."""
    follows = record.follows
    return follows if follows is not None and follows < record.key.turn else None


def _fenced(source: str | None) -> str:
    return NOTHING_SAID if source is None else f"```cuda\n{source.rstrip()}\n```"
