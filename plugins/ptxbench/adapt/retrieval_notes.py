"""Retrieved notes in a conversation: what ``--retrieval`` adds to the feedback on a kernel that failed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import JsonValue

from ptxbench.adapt.kernel_code import code_sha256
from ptxbench.adapt.retrieval import K1, TOP, Asking, B, Corpus, Entry
from ptxbench.adapt.texts import VERSION, digest, filled
from ptxbench.models import PastTurn
from ptxbench.packs import estimate_tokens
from ptxbench.records import Outcome

if TYPE_CHECKING:
    from ptxbench.cases import Case

Mode = Literal["notes", "notes+kernel"]
MODES: tuple[Mode, ...] = ("notes", "notes+kernel")

_NOTHING_TO_MEND = frozenset({Outcome.CORRECT, Outcome.UNKNOWN, Outcome.INFRASTRUCTURE_ERROR})


class RunName(NamedTuple):
    """The run that goes on."""

    name: str
    created_at: str


class RetrievedNotes:
    """Notes of one corpus, as ``ptxbench.agent.conversation.Notes`` wants them. Safe for several threads."""

    def __init__(self, corpus: Corpus, mode: Mode, run: RunName) -> None:
        self._corpus = corpus
        self._mode = mode
        self._run = run

    @property
    def identity(self) -> str:
        """Mode and content, part of the prompts' identity: reports of runs that differ in it say so."""
        return f"retrieval of {self._mode} {VERSION}, {self._corpus.sha256[:12]}"

    @property
    def conditions(self) -> dict[str, JsonValue]:
        """What the run keeps: resuming it with another mode, content or wording is refused."""
        return conditions(self._corpus, self._mode)

    def about(self, case: Case, last: PastTurn, history: Sequence[PastTurn]) -> str:
        """The notes on failures like ``last``; nothing where it did not fail, or left no kernel to look for."""
        if last.source is None or last.record.verdict.outcome in _NOTHING_TO_MEND:
            return ""
        asking = Asking(
            definition=case.definition.name,
            arch=case.arch.name,
            run=self._run.name,
            run_created_at=self._run.created_at,
            kernels=frozenset(code_sha256(past.source) for past in (*history, last) if past.source is not None),
        )
        found = self._corpus.search(last.source, asking)
        if not found:
            return ""
        return "\n".join(
            (filled("retrieval"), *(_note(self._mode, number, each) for number, each in enumerate(found, 1)))
        )


def conditions(corpus: Corpus, mode: Mode) -> dict[str, JsonValue]:
    """Everything that decides which notes a prompt gets."""
    found: dict[str, JsonValue] = {
        "mode": mode,
        "corpus_sha256": corpus.sha256,
        "prompts_sha256": digest("retrieval"),
        "k1": K1,
        "b": B,
        "top": TOP,
    }
    return {"retrieval": found}


def usual_tokens(corpus: Corpus, mode: Mode) -> int:
    """Tokens that a prompt's notes have, about: as many average ones as it gets at most."""
    sizes = [estimate_tokens(_note(mode, 1, entry)) for entry in corpus.entries]
    return estimate_tokens(filled("retrieval")) + min(TOP, len(sizes)) * round(fmean(sizes))


def _note(mode: Mode, number: int, entry: Entry) -> str:
    text = f"Note {number}:\n{entry.note.strip()}\n"
    if mode == "notes":
        return text
    # Between tildes, so that no reader of the conversation takes it for an answer's block.
    return f"{text}\nThe kernel that came of it:\n~~~~cuda\n{entry.kernel.rstrip()}\n~~~~\n"
