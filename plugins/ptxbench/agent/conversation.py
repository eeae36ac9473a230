"""A language model as a writer of kernels: each turn is one call within a conversation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ptxbench.agent.asking import Asker, ContextExhaustedError
from ptxbench.agent.budget import Budget, spent_on
from ptxbench.agent.dialogue import Dialogue, begun_with, chain, said
from ptxbench.agent.goal import PROTOCOL_GOAL, Goal
from ptxbench.agent.meter import Meter
from ptxbench.agent.plain import storable
from ptxbench.agent.prompt import first_messages, identity
from ptxbench.agent.store import ASKED
from ptxbench.errors import InfrastructureError
from ptxbench.models import End, PastTurn, Proposal
from ptxbench.models.client import ModelClient, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.packs import Pack
from ptxbench.records import (
    Candidate,
    Exchange,
    Message,
    PendingReply,
    PromptIdentity,
    TrajectoryEnd,
    TurnKey,
    prompt_sha256,
)

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.toolchain import Toolchain


class Replies(Protocol):
    """What a conversation needs of the run folder."""

    def load_reply(self, key: TurnKey) -> PendingReply | None:
        """The reply of a turn that is not finished."""

    def save_reply(self, pending: PendingReply) -> None:
        """Store a reply that just came in. Raises InfrastructureError."""

    def load_end(self, key: TurnKey) -> TrajectoryEnd | None:
        """How the turn's trajectory ended in an earlier session."""


class Connection(NamedTuple):
    """What a session gives to one of its models."""

    client: ModelClient
    replies: Replies
    budget: Budget
    meter: Meter
    stopped: Callable[[], bool]
    toolchain: Callable[[], AbstractContextManager[Toolchain | None]]
    """Borrows the toolchain, with which feedback finds the source line of an instruction; None where there is none."""


class Notes(Protocol):
    """Adds to the feedback on a turn what others learned from turns like it. Safe for several threads."""

    @property
    def identity(self) -> str:
        """What the notes are from, in a few words: part of the prompts' identity."""

    def about(self, case: Case, last: PastTurn, history: Sequence[PastTurn]) -> str:
        """What to say beside the feedback on ``last``; nothing where there is nothing. ``history`` came before it."""


class Opening(NamedTuple):
    """What a conversation begins with; the last message is the user's."""

    messages: tuple[Message, ...]
    prompt: PromptIdentity
    """Of the texts that they were assembled from."""


class Telling(NamedTuple):
    """How conversations differ from the protocol's."""

    opening: Callable[[Case, int, int], Opening] | None = None
    """Of a case, variant and trajectory; None: the two messages that every trajectory of a variant begins with."""
    goal: Goal = PROTOCOL_GOAL
    notes: Notes | None = None


class ConversingModel:
    """Asks one model, turn by turn, with the feedback on all its earlier kernels.

    ``turns`` is how many each trajectory is given, ``pack`` finds the knowledge of a case's architecture, ``connect``
    opens what calls need, ``telling`` says how conversations differ from the protocol's; none is used before the first
    turn is asked for, so that a run can be planned without.
    """

    turns: int | None = None

    def __init__(
        self,
        entry: ModelEntry,
        turns: int,
        pack: Callable[[Case], Pack],
        connect: Callable[[], Connection],
        telling: Callable[[], Telling] | None = None,
    ) -> None:
        self.name = entry.name
        self.entry = entry
        self._tell = telling or Telling
        self._told: Telling | None = None
        self._turns = turns
        self._pack = pack
        self._connect = connect
        self._lock = threading.Lock()
        self._opened: tuple[Connection, Asker] | None = None
        self._unsaved: list[PendingReply] = []

    def min_speedup(self, case: Case) -> float | None:
        """A language model declares no floor."""
        del case
        return None

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """Nothing: asking again would be another answer."""
        del case, variant, trajectory, turn
        return None

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The kernel in the model's reply. A reply on disk to the same prompt is used instead of asking again.

        Ends where the context or the budget is exhausted. Raises InfrastructureError ``model_KIND`` where no reply
        could be had, ``disk_full`` where it could not be stored.
        """
        connection, _ = self._open()
        key = TurnKey(
            model=self.name, case=case.name, arch=case.arch.name, variant=variant, trajectory=trajectory, turn=turn
        )
        dialogue = self._dialogue(case, key, history, connection)
        known = _known(connection, key, prompt_sha256(dialogue.messages))
        if known is not None:
            return known
        self._flush()
        if reason := connection.budget.exhausted():
            return End(message=reason, reason="budget")
        exchange = self._call(key, dialogue)
        if isinstance(exchange, End):
            return exchange
        with self._lock:
            self._unsaved.append(PendingReply(key=key, exchange=exchange))
        try:
            self._flush()
        finally:
            self._count(exchange, dialogue)
        return _proposal(exchange)

    def close(self) -> None:
        """Store what could not be stored so far, and let go of the client. Idempotent. Raises InfrastructureError."""
        with self._lock:
            opened = self._opened
        if opened is not None:
            try:
                opened[0].client.close()
            finally:
                self._flush()

    def first_prompt(self, case: Case, variant: int) -> tuple[Message, ...]:
        """What a trajectory begins with. Needs no connection."""
        return tuple(first_messages(case, case.variants[variant], self._pack(case)))

    @property
    def _telling(self) -> Telling:
        self._told = self._told or self._tell()
        return self._told

    def _opening(self, case: Case, key: TurnKey) -> Opening:
        """What a trajectory begins with, and which texts that is from."""
        if self._telling.opening is not None:
            return self._telling.opening(case, key.variant, key.trajectory)
        notes, prompt = self._telling.notes, identity(self._pack(case))
        if notes is not None:
            # The first prompt is the same; what is said later is not.
            prompt = prompt.model_copy(update={"template": f"{prompt.template} + {notes.identity}"})
        return Opening(self.first_prompt(case, key.variant), prompt)

    def _dialogue(self, case: Case, key: TurnKey, history: Sequence[PastTurn], connection: Connection) -> Dialogue:
        """The prompt of a turn. Only feedback on the last turn is written now; the rest is what was really said."""
        opening = self._opening(case, key)
        if not history:
            return Dialogue((), *opening)
        # Late, like the extraction: most of what it takes to import the agent.
        from ptxbench.agent.feedback import feedback
        from ptxbench.agent.feedback.places import has_places

        last = history[-1]
        before = opening.messages if last.record.exchange is None else ()
        # It takes a compile slot, which others may need.
        with connection.toolchain() if has_places(last) else nullcontext(None) as toolchain:
            text = feedback(
                case,
                last,
                turns_left=self._turns - key.turn,
                toolchain=toolchain,
                history=chain(last, history)[:-1],
                goal=self._telling.goal,
            )
        if self._telling.notes is not None and (notes := self._telling.notes.about(case, last, history[:-1])):
            text = f"{text}\n{notes}"
        # The pack may be another by now, or another part of it asked for: what was said was the earlier one.
        prompt = begun_with(last, history) or opening.prompt
        return Dialogue(said(last, history, before), (Message(role="user", content=text),), prompt)

    def _open(self) -> tuple[Connection, Asker]:
        with self._lock:
            if self._opened is None:
                connection = self._connect()
                self._opened = connection, Asker(connection.client, self.name, connection.stopped)
            return self._opened

    def _call(self, key: TurnKey, dialogue: Dialogue) -> Exchange | End:
        connection, asker = self._open()
        exchange = Exchange(
            added=dialogue.added,
            prompt_sha256=prompt_sha256(dialogue.messages),
            prompt=dialogue.prompt,
            sent=dict(connection.client.settings()),
            asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
            reply=None,
        )
        try:
            found = asker.ask(Request(dialogue.messages, str(key), connection.stopped))
        except ContextExhaustedError as error:
            exchange = exchange.model_copy(update={"attempts": error.attempts})
            message = f"the conversation no longer fits the model's context: {error}"
            return End(message=message, reason="context_exhausted", exchange=exchange)
        # JSON can name halves of surrogate pairs, which no file can hold.
        return exchange.model_copy(update={"attempts": found.attempts, "reply": storable(found.reply)})

    def _count(self, exchange: Exchange, dialogue: Dialogue) -> None:
        """What a call took, once its reply is stored: nothing that a provider counts may lose it."""
        assert exchange.reply is not None
        connection, _ = self._open()
        spent = spent_on(exchange.reply, dialogue.messages, self.entry.prices)
        connection.budget.add(spent)
        connection.meter.called(spent.usd, spent.tokens)

    def _flush(self) -> None:
        """Store replies that came in, as many as can be.

        Raises InfrastructureError if one could not be: while the disk refuses, nothing more may be paid for. A reply
        that cannot be stored whatever the disk does is given up.
        """
        failure: InfrastructureError | None = None
        with self._lock:
            waiting, self._unsaved = self._unsaved, []
            for pending in waiting:
                assert self._opened is not None
                try:
                    self._opened[0].replies.save_reply(pending)
                except InfrastructureError as error:
                    self._unsaved.append(pending)
                    failure = failure or error
                except Exception as error:
                    reason = f"{self.name}: expected a reply that can be stored, found {type(error).__name__}: {error}"
                    failure = failure or InfrastructureError("model_malformed_response", reason)
        if failure is not None:
            raise failure


def _known(connection: Connection, key: TurnKey, digest: str) -> Proposal | End | None:
    """What an earlier session already heard of this very prompt."""
    pending = connection.replies.load_reply(key)
    if pending is not None and pending.exchange.reply is not None and pending.exchange.prompt_sha256 == digest:
        return _proposal(pending.exchange)
    end = connection.replies.load_end(key)
    if end is None or end.reason != "context_exhausted" or end.key != key or end.exchange is None:
        return None
    # Another model behind the same name, or other limits, may have room for it.
    same = end.exchange.prompt_sha256 == digest and end.exchange.sent == dict(connection.client.settings())
    return End(message=end.message, reason=end.reason, exchange=end.exchange) if same else None


def _proposal(exchange: Exchange) -> Proposal:
    # Late, with the lexer behind it: a run that has all its turns takes no kernel out of an answer.
    from ptxbench.agent.extraction import extract

    assert exchange.reply is not None
    found = extract(exchange.reply)
    candidate = None if found.source is None else Candidate(source=found.source)
    return Proposal(candidate=candidate, extraction_error=found.error, origin=ASKED, exchange=exchange)
