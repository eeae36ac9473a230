"""What a training leaves in its folder beside checkpoints: its identity, before it begins, and its result."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.records import Record, Sha256
from ptxbench.records.base import Amount, Count, Real, first_fault

IDENTITY = "training.json"
RESULT = "result.json"
CHECKPOINTS = "checkpoints"
ADAPTER = "adapter"


class DroppedRecord(Record):
    """A record that has more tokens than the settings allow."""

    name: str
    tokens: Count


class Training(Record):
    """Which training it is. Resuming refuses a change of anything in it."""

    schema_version: Literal[1] = 1
    base: str
    """The base model, as it was given: a name or a folder."""
    settings: TrainSettings
    records_sha256: Sha256
    """Of the dataset's JSONL file."""
    template_sha256: Sha256
    """Of the chat template."""
    records: Count
    """Trained on."""
    dropped: tuple[DroppedRecord, ...]
    tokens: Count
    """Of one epoch."""
    supervised_tokens: Count
    """Of those, with a loss."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole training. An odd record at an epoch's end makes a step of its own."""
        return -(-self.records // self.settings.batch) * self.settings.epochs


class TrainingResult(Record):
    """What came of it. Times and rates are of the last session, in which ``resumed_at`` tells where it began."""

    schema_version: Literal[1] = 1
    steps: Count
    resumed_at: Count = 0
    losses: tuple[tuple[Count, Real], ...]
    """Step and mean loss of its supervised tokens, over all sessions."""
    seconds: Amount
    tokens_per_s: Amount
    """All tokens, supervised or not, over all processes."""
    processes: Count
    device: str
    peak_memory_bytes: Count = 0
    """Of the allocator of the first process's GPU; 0 without one."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Package -> version."""


def claim(out: Path, training: Training, *, resume: bool) -> None:
    """Begin the training in ``out``, or make sure that it is the one to go on with.

    Raises InputError for a folder in use, and for a training other than the one that was begun there.
    """
    path = out / IDENTITY
    if not path.exists():
        if resume:
            raise InputError(
                f"--resume {out}: expected a training that was begun, found no {IDENTITY}; leave --resume out"
            )
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"--out {out}: expected a new or empty folder, found something there; name another")
        _write(path, training)
        return
    if not resume:
        raise InputError(f"--out {out}: expected a new or empty folder, found a training; add --resume or name another")
    begun = read_training(out)
    if begun != training:
        raise InputError(
            f"--resume {out}: expected the training that was begun, found another {_changed(begun, training)}; give "
            "what was given then, or begin a new one elsewhere"
        )


def read_training(out: Path) -> Training:
    """The identity of the training in ``out``. Raises InputError where there is none that can be read."""
    path = out / IDENTITY
    try:
        return Training.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: expected a training's identity, found: {error.strerror}; name its folder") from error
    except ValidationError as error:
        raise InputError(f"{path}: expected a training's identity, found {first_fault(error)}; begin anew") from error


def write_result(out: Path, result: TrainingResult) -> None:
    """Keep the result beside the adapter."""
    _write(out / RESULT, result)


def _write(path: Path, record: Record) -> None:
    try:
        write_whole(path, record.model_dump_json(indent=1).encode() + b"\n")
    except OSError as error:
        raise InputError(f"{path}: expected a file that can be written, found: {error.strerror}") from error


def _changed(begun: Training, now: Training) -> str:
    old, new = begun.model_dump(), now.model_dump()
    settings = [f"settings.{name}" for name in old["settings"] if old["settings"][name] != new["settings"][name]]
    return ", ".join(settings + [name for name in old if name != "settings" and old[name] != new[name]])
