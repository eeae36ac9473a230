"""What passes between the stages of adaptation, from a judged turn to a training record. One record a line in files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.records import Candidate, Message, Outcome, PromptIdentity, Record, Sha256, TurnKey, Verdict
from ptxbench.records.base import Turns, first_fault

FAILURES = "failures.jsonl"
CORRECTS = "corrects.jsonl"
REPAIRS = "repairs.jsonl"
RATIONALES = "rationales.jsonl"


class Provenance(Record):
    """Which turn of which run something is of."""

    run: str
    """Name of the run folder."""
    run_created_at: str
    """As its ``run.json`` says; the name may change."""
    suites: tuple[str, ...]
    """Names under which the run keeps its content: where the case is found."""
    key: TurnKey

    def id(self, source_sha256: str) -> str:
        """Stable identity of the turn with its kernel, whatever the run folder is called."""
        text = "\0".join((self.run_created_at, str(self.key), source_sha256))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class ToldTurn(Record):
    """A turn of a model with the prompt x that its conversation began with."""

    schema_version: Literal[1] = 1
    origin: Provenance
    definition: str
    variant_name: str
    prompt: tuple[Message, ...]
    """x: the system and user message that the conversation began with, as they were sent."""
    prompt_identity: PromptIdentity
    """Which texts x was assembled from."""
    source: str
    """The kernel: k- of a failure, k+ of a correct turn."""

    @property
    def id(self) -> str:
        """Stable: of the run's beginning, the turn and the kernel."""
        return self.origin.id(self.source_sha256)

    @property
    def source_sha256(self) -> str:
        """Identity of the kernel."""
        return Candidate(source=self.source).sha256


class Failure(ToldTurn):
    """A turn of the model under adaptation that went wrong: prompt x, wrong kernel k-, feedback e."""

    outcome: Outcome
    feedback: str
    """e: what the model was told of k-, but for what it was told of other turns (``ptxbench.adapt.feedback_alone``)."""


class Correct(ToldTurn):
    """A correct turn of some model, for KernelGen: prompt x, kernel k+."""

    verdict: Verdict


class Repair(Record):
    """A failure and a kernel k+ that passes the correctness check."""

    schema_version: Literal[1] = 1
    failure: Failure
    source: str
    """k+."""
    verdict: Verdict
    turns: Turns
    """Answers of the teacher up to and with k+."""
    teacher: str
    """Name of the repair teacher."""
    turn: Provenance
    """Of k+."""

    @property
    def id(self) -> str:
        """That of the failure: it has one repair."""
        return self.failure.id

    @property
    def source_sha256(self) -> str:
        """Identity of k+."""
        return Candidate(source=self.source).sha256


class Rationale(Record):
    """A kernel k+ and the reasoning r that leads to it: from a failure, or for KernelGen from the task alone."""

    schema_version: Literal[1] = 1
    repair: Repair | Correct
    text: str
    """r."""
    teacher: str
    """Name of the reasoning teacher."""
    attempts: Turns
    """Answers of the teacher up to and with r."""
    asked_sha256: tuple[Sha256, ...] = ()
    """Of the prompts of these attempts; the dossiers beside hold them whole."""

    @property
    def id(self) -> str:
        """That of the failure, or of the correct turn."""
        return self.repair.id

    @property
    def origin(self) -> Provenance:
        """Of the turn that the prompt x is from."""
        return self.repair.failure.origin if isinstance(self.repair, Repair) else self.repair.origin


class TrainingMessage(Record):
    """One message of a training record."""

    role: Literal["system", "user", "assistant"]
    content: str
    training: bool
    """The loss mask: whether the message is supervised."""


class TrainingRecord(Record):
    """One line of a dataset. Its columns after ``messages`` say where it comes from, and are not trained on."""

    id: str
    messages: tuple[TrainingMessage, ...]
    kind: Literal["fixit", "kernelgen"]
    definition: str
    case: str
    arch: str
    language: str
    variant: str
    outcome: str
    """Of k-; ``correct`` for KernelGen, which has none."""
    turn: int
    """Of the turn that x and k- (for KernelGen k+) are of, from 0."""
    trajectory: int
    model: str
    """Whose turn that is."""
    run: str
    run_created_at: str
    repair_teacher: str
    """Who wrote k+."""
    repair_turns: int
    """Answers up to and with k+; 0 for KernelGen."""
    reasoning_teacher: str
    """Who wrote r."""
    reasoning_attempts: int
    target: str
    """Whether a target instruction executes in k+, as ``Verdict.target``."""
    speedup: float | None
    """Of k+."""
    failed_sha256: str
    """Identity of k-; empty for KernelGen."""
    kernel_sha256: Sha256
    """Identity of k+."""
    template: str
    """Version of our instructions in x."""
    pack: str
    """Knowledge pack in x, with its version."""
    pack_sha256: Sha256
    tokens: int
    """Of all messages, by the counter that the manifest names."""


AnyRecord = TypeVar("AnyRecord", Failure, Correct, Repair, Rationale)


def read_lines(kind: type[AnyRecord], path: Path) -> list[AnyRecord]:
    """The records of a file. Raises InputError with the line of one that is none."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: expected a file of records, found: {error.strerror}; check the path") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise InputError(
                f"{path}:{number}: expected one {kind.__name__} as JSON, found {first_fault(error)}; "
                "restore the file, or make it again"
            ) from error
    return found


def write_lines(records: Iterable[Failure | Correct | Repair | Rationale], path: Path) -> None:
    """Write records sorted by id: the same records give the same bytes. Raises InputError."""
    lines = [record.model_dump_json() for record in sorted(records, key=lambda record: record.id)]
    try:
        write_whole(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; choose another place") from error
