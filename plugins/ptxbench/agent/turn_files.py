"""One record in one file, and the two files of a turn."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from ptxbench.agent.plain import storable
from ptxbench.errors import InputError
from ptxbench.records import Candidate, Record, TurnRecord
from ptxbench.records.base import first_fault

AnyRecord = TypeVar("AnyRecord", bound=Record)


class StoredTurn(NamedTuple):
    """A turn as it lies on disk: both files present and agreeing."""

    record: TurnRecord
    candidate: Candidate | None


class DamagedTurn(NamedTuple):
    """A turn whose files are not whole or do not agree."""

    path: Path
    """Its record."""
    reason: str


def read_record(path: Path) -> TurnRecord:
    """One record from its file. Raises InputError for a file that is none or whose source is missing or another."""
    stored = read_turn(path)
    if stored is None:
        raise InputError(f"{path}: expected the record of a turn, found no such file; check the path")
    if isinstance(stored, str):
        raise InputError(f"{path}: expected the record of a turn, found: {stored}")
    return stored.record


def read_turn(path: Path) -> StoredTurn | str | None:
    """A turn from disk: None if there is none, or what is wrong with it."""
    try:
        record = TurnRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        return f"not a whole record ({first_fault(error)})"
    except OSError as error:
        return f"not a whole record ({error})"
    if record.build is not None and record.build.candidate_sha256 != record.source_sha256:
        return "its build is of another source"
    if record.source_sha256 is None:
        return StoredTurn(record, None)
    try:
        source = path.with_suffix(".cu").read_bytes().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError) as error:
        return f"its source cannot be read ({error})"
    candidate = Candidate(source=source)
    if candidate.sha256 != record.source_sha256:
        return "its source is not the one that was judged"
    return StoredTurn(record, candidate)


def read_turn_in_place(path: Path) -> StoredTurn | str | None:
    """A turn from its place in a run (``turns/<trajectory>/turnN.json``): one that was copied elsewhere would count
    twice. None and what is wrong with it as ``read_turn`` says."""
    stored = read_turn(path)
    if not isinstance(stored, StoredTurn):
        return stored
    key = stored.record.key
    in_place = (path.absolute().parent.name, path.stem) == (key.trajectory_id, f"turn{key.turn}")
    return stored if in_place else f"it is the record of {key}"


def read(kind: type[AnyRecord], path: Path) -> AnyRecord | None:
    """A record from disk; None if there is none that can be read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def remove(path: Path) -> None:
    """Remove a file if that is possible."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def to_json(record: Record) -> bytes:
    """A record as its file holds it. Characters that no file can hold are replaced: no record is lost for them."""
    try:
        text = record.model_dump_json(indent=1)
    except ValueError:
        text = storable(record).model_dump_json(indent=1)
    return text.encode() + b"\n"
