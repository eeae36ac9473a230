"""Rationales: the reasoning teacher writes how one gets from the failure to its repair (PROTOCOL 7)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, NamedTuple

from ptxbench.adapt.defaults import ATTEMPTS, RECORD_TOKENS
from ptxbench.adapt.dossier import Asked, Dossier, Dossiers
from ptxbench.adapt.model import Correct, Repair
from ptxbench.adapt.rationale_rules import Fault, Reading, Window, read_rationale
from ptxbench.adapt.teacher import Teacher
from ptxbench.adapt.texts import filled
from ptxbench.agent.asking import Asker, ContextExhaustedError
from ptxbench.agent.budget import spent_on
from ptxbench.agent.dialogue import answer
from ptxbench.errors import InfrastructureError
from ptxbench.models.client import Request
from ptxbench.packs import estimate_tokens
from ptxbench.records import Message, prompt_sha256

MARGIN = 0.1
"""Part of the tokens that estimates may be short of. Ours: they are within -7% and +14% of Qwen's."""

Dropped = Literal["no room", "form", "person", "short", "long", "leak", "context"]


class Subject(NamedTuple):
    """What a rationale is of."""

    id: str
    prompt: tuple[Message, ...]
    """x."""
    failed: str | None
    """k-; None for a kernel that was written from the prompt at once (KernelGen)."""
    feedback: str
    """e; empty without k-."""
    kernel: str
    """k+."""

    @property
    def task(self) -> str:
        """x as one text."""
        return "\n\n".join(message.content.strip() for message in self.prompt)

    @property
    def known(self) -> tuple[str, ...]:
        """What the student has before its eyes, and may quote."""
        return (self.task, self.failed or "", self.feedback)

    @property
    def tokens(self) -> int:
        """Of the record, without a rationale; estimated."""
        return sum(map(estimate_tokens, (*self.known, self.kernel)))


def subject_of(repair: Repair | Correct) -> Subject:
    """What the rationale of a kernel is of."""
    if isinstance(repair, Correct):
        return Subject(repair.id, repair.prompt, None, "", repair.source)
    failure = repair.failure
    return Subject(repair.id, failure.prompt, failure.source, failure.feedback, repair.source)


class Written(NamedTuple):
    """A rationale that may stay."""

    text: str
    attempts: int
    prompts: tuple[str, ...]
    """Hashes of what was asked."""


class Refused(NamedTuple):
    """A subject that gets none."""

    reason: Dropped
    message: str


class Left(NamedTuple):
    """A subject that has none yet: going on later may bring one."""

    reason: Literal["budget", "stopped"]


class Writer:
    """Asks one teacher. Safe for several threads, one subject each."""

    def __init__(
        self,
        teacher: Teacher,
        dossiers: Dossiers,
        window: Window | None = None,
        *,
        attempts: int = ATTEMPTS,
        record_tokens: int = RECORD_TOKENS,
    ) -> None:
        self._teacher = teacher
        self._dossiers = dossiers
        self._window = window or Window()
        self._attempts = attempts
        self._record_tokens = record_tokens
        self._asker = Asker(teacher.client, teacher.name, teacher.stop.is_set)

    def write(self, subject: Subject) -> Written | Refused | Left:
        """The rationale of a subject; answers of earlier sessions are used and not paid for again.

        Raises InfrastructureError where an answer could not be had or stored.
        """
        window = self._window.within(round(self._record_tokens / (1 + MARGIN)) - subject.tokens)
        if window.most < window.least:
            return Refused("no room", f"its kernels and texts have about {subject.tokens} tokens")
        dossier = self._dossiers.load(subject.id)
        messages: tuple[Message, ...] = ()
        added = _opening(subject, window)
        prompts: list[str] = []
        reading: Reading | None = None
        for number in range(self._attempts):
            messages = (*messages, *added)
            prompts.append(prompt_sha256(messages))
            found = self._answer(dossier, number, messages, added, subject.id)
            if not isinstance(found, Dossier):
                return found
            dossier = found
            reply = dossier.asked[number].reply
            reading = read_rationale(reply, window, kernel=subject.kernel, known=subject.known)
            if not reading.faults:
                return Written(reading.text, number + 1, tuple(prompts))
            messages = (*messages, Message(role="assistant", content=answer(reply)))
            added = (Message(role="user", content=_complaint(reading.faults, window)),)
        assert reading is not None
        return Refused(reading.faults[0].kind, reading.faults[0].message)

    def _answer(
        self, dossier: Dossier, number: int, messages: tuple[Message, ...], added: tuple[Message, ...], name: str
    ) -> Dossier | Refused | Left:
        """The dossier with the answer of that number, asked for unless it is there."""
        digest = prompt_sha256(messages)
        if number < len(dossier.asked):
            if dossier.asked[number].prompt_sha256 == digest:
                return dossier
            kept, others = dossier.asked[:number], dossier.asked[number:]
            dossier = dossier.model_copy(update={"asked": kept, "unused": (*dossier.unused, *others)})
        if self._teacher.budget.exhausted():
            return Left("budget")
        if self._teacher.stop.is_set():
            return Left("stopped")
        asked_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            found = self._asker.ask(self._request(messages, f"rationale-{name}-{number}"))
        except ContextExhaustedError as error:
            return Refused("context", str(error))
        asked = Asked(
            added=added,
            prompt_sha256=digest,
            sent=dict(self._teacher.client.settings()),
            asked_at=asked_at,
            attempts=found.attempts,
            reply=found.reply,
        )
        dossier = dossier.model_copy(update={"asked": (*dossier.asked, asked)})
        spent = spent_on(found.reply, messages, self._teacher.entry.prices)
        try:
            self._dossiers.save(dossier)
        except InfrastructureError:
            # What the disk refuses is paid for and lost: nothing else is asked.
            self._teacher.stop.set()
            raise
        finally:
            self._teacher.budget.add(spent)
            self._teacher.meter.called(spent.usd, spent.tokens)
        # As it is on disk, so that a resumed session reads the very same.
        return self._dossiers.load(name)

    def _request(self, messages: tuple[Message, ...], label: str) -> Request:
        return Request(messages, label, self._teacher.stop.is_set)


def _opening(subject: Subject, window: Window) -> tuple[Message, ...]:
    system = filled("rationale_system", least=window.least, most=window.most)
    kernel = subject.kernel.rstrip()
    if subject.failed is None:
        user = filled("rationale_kernelgen", task=subject.task, kernel=kernel)
    else:
        user = filled(
            "rationale_fixit",
            task=subject.task,
            failed=subject.failed.rstrip(),
            feedback=subject.feedback.strip(),
            kernel=kernel,
        )
    return Message(role="system", content=system), Message(role="user", content=user)


def _complaint(faults: tuple[Fault, ...], window: Window) -> str:
    listed = "\n".join(f"- {fault.message}" for fault in faults)
    return filled("rationale_again", faults=listed, least=window.least, most=window.most)
