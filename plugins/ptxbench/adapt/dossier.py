"""What was asked and answered for one rationale, on disk before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue, ValidationError

from ptxbench.agent.budget import Spent, spent_on
from ptxbench.agent.files import write_record
from ptxbench.agent.identity import differences
from ptxbench.agent.plain import storable
from ptxbench.agent.turn_files import to_json
from ptxbench.errors import InputError
from ptxbench.models.entry import Prices
from ptxbench.records import FailedAttempt, Message, Record, Reply, Sha256
from ptxbench.records.base import first_fault

TEACHER_FILE = "teacher.json"
FOLDER = "dossiers"


class Asked(Record):
    """One call of the teacher. The messages before ``added`` are those of the calls before, with their answers."""

    added: tuple[Message, ...]
    prompt_sha256: Sha256
    sent: dict[str, JsonValue]
    asked_at: str
    """UTC, ISO 8601."""
    attempts: tuple[FailedAttempt, ...] = ()
    """Calls that brought no answer before this one."""
    reply: Reply


class Dossier(Record):
    """All calls for one rationale, in order."""

    schema_version: Literal[1] = 1
    id: str
    asked: tuple[Asked, ...] = ()
    unused: tuple[Asked, ...] = ()
    """Calls whose prompt would be another today. They were paid for."""


class TeacherTerms(Record):
    """Whom the dossiers of a folder are of: under one name there is one model."""

    schema_version: Literal[1] = 1
    teacher: str
    sent: dict[str, JsonValue]


class Dossiers:
    """A folder of dossiers. One per rationale; several threads may use different ones at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def join(self, terms: TeacherTerms) -> None:
        """Say whose they are. Raises InputError where they are another teacher's, or one asked otherwise."""
        path = self._folder / TEACHER_FILE
        try:
            known = TeacherTerms.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            write_record(path, to_json(terms))
            return
        except (OSError, ValidationError) as error:
            found = first_fault(error) if isinstance(error, ValidationError) else error.strerror
            raise InputError(f"{path}: expected the teacher of this folder, found {found}; restore the file") from error
        if known.teacher != terms.teacher:
            raise InputError(
                f"{self._folder}: expected its own teacher {known.teacher}, found {terms.teacher}; choose another"
                " folder"
            )
        for field, (before, now) in differences(known.sent, terms.sent):
            raise InputError(
                f"{self._folder}: expected the teacher as it was asked when the folder was begun, with {field} "
                f"{before}, found {field} {now}; choose another folder, or another name for the model"
            )

    def load(self, name: str) -> Dossier:
        """A dossier; an empty one where there is none. Raises InputError for one that cannot be read."""
        path = self._path(name)
        try:
            return Dossier.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return Dossier(id=name)
        except (OSError, ValidationError) as error:
            found = first_fault(error) if isinstance(error, ValidationError) else error.strerror
            raise InputError(
                f"{path}: expected a dossier, found {found}; restore the file, or remove it to pay again"
            ) from error

    def save(self, dossier: Dossier) -> None:
        """Store a dossier. Raises InfrastructureError."""
        write_record(self._path(dossier.id), to_json(storable(dossier)))

    def spent(self, prices: Prices | None) -> Iterator[Spent]:
        """What each call took."""
        for path in sorted((self._folder / FOLDER).glob("*.json")):
            dossier = self.load(path.stem)
            yield from _spent(dossier.asked, prices)
            for asked in dossier.unused:
                yield spent_on(asked.reply, asked.added, prices)

    def _path(self, name: str) -> Path:
        return self._folder / FOLDER / f"{name}.json"


def _spent(calls: Sequence[Asked], prices: Prices | None) -> Iterable[Spent]:
    said: list[Message] = []
    for asked in calls:
        said += asked.added
        yield spent_on(asked.reply, said, prices)
        said.append(Message(role="assistant", content=asked.reply.text))
