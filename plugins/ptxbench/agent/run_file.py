"""A run folder as a whole: its ``run.json``, and what may lie beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ptxbench import __version__
from ptxbench.agent.files import write_record
from ptxbench.agent.identity import RunIdentity, Session, joined
from ptxbench.agent.turn_files import to_json
from ptxbench.errors import InputError
from ptxbench.records.base import first_fault

RUN_FILE = "run.json"
SUBFOLDERS = ("turns", "replies", "faults", "aside", "locks", "agents")


def read_identity(folder: Path) -> RunIdentity:
    """What the folder is a run of. Raises InputError if it is none, or cannot be read."""
    path = folder / RUN_FILE
    try:
        return RunIdentity.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder}: expected a run folder, found no {RUN_FILE} in it; check the name or path"
        ) from None
    except ValidationError as error:
        raise InputError(
            f"{path}: expected the identity of a run, found {first_fault(error)}; "
            "restore the file, or choose another --run"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def check(folder: Path, session: Session) -> None:
    """Whether the session could create the run, or take part in it. Writes nothing. Raises InputError if not."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--run {folder}: expected a folder, found a file; choose another name or path")
    if folder.is_dir():
        refuse_foreign(folder)
        refuse_files(folder)
        if (folder / RUN_FILE).exists():
            joined(str(folder), read_identity(folder), session)


def refuse_foreign(folder: Path) -> None:
    """Leave folders alone that hold something else. Raises InputError."""
    found = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if found and RUN_FILE not in found:
        raise InputError(
            f"--run {folder}: expected a run folder or an empty one, found {found[0]!r} but no {RUN_FILE}; "
            "choose another name or path"
        )


def refuse_files(folder: Path) -> None:
    """Say so where a file has the name of one of the run's folders. Raises InputError."""
    for path in (folder / name for name in SUBFOLDERS):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: expected a folder, found a file; move it away, or choose another --run")


def join(folder: Path, session: Session) -> RunIdentity:
    """Create ``run.json``, or check that the session fits it and add what is new. Raises InputError."""
    path = folder / RUN_FILE
    if path.exists():
        stored = read_identity(folder)
    else:
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        stored = RunIdentity(created_at=created_at, ptxbench=__version__, suites={})
    found = joined(str(folder), stored, session)
    if found != stored or not path.exists():
        write_record(path, to_json(found))
    return found
