"""One session of a reasoning teacher over many subjects."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.defaults import ATTEMPTS, RECORD_TOKENS
from ptxbench.adapt.dossier import Dossiers, TeacherTerms
from ptxbench.adapt.model import CORRECTS, REPAIRS, Correct, Rationale, Repair, read_lines
from ptxbench.adapt.rationale import Left, Refused, Subject, Writer, Written
from ptxbench.adapt.rationale_rules import Window
from ptxbench.adapt.repair_proof import read_repairs
from ptxbench.adapt.teacher import engaged, held, total
from ptxbench.agent.budget import Limits
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models.entry import ModelEntry


class Desk(NamedTuple):
    """Where rationales are written, and how."""

    folder: Path
    """Of the dossiers."""
    window: Window = Window()
    attempts: int = ATTEMPTS
    record_tokens: int = RECORD_TOKENS
    concurrency: int = 4
    limits: Limits = Limits()


class Session(NamedTuple):
    """What became of the subjects."""

    written: dict[str, Written]
    """By the subject's id."""
    refused: dict[str, Refused]
    left: dict[str, str]
    """Subjects to go on with later -> ``budget``, ``stopped``, or the kind of a fault."""
    usd: float
    tokens: int
    """What this session spent."""


def write_rationales(subjects: Sequence[Subject], entry: ModelEntry, desk: Desk) -> Session:
    """Have rationales written; what an earlier session heard is not asked for again.

    Raises InputError for subjects of one id, a folder of another teacher, or one that another session is at work in.
    """
    by_id = {subject.id: subject for subject in subjects}
    if len(by_id) != len(subjects):
        raise InputError("expected each kernel once, found one twice; take it out of the file")
    dossiers = Dossiers(desk.folder)
    with held(desk.folder), engaged(entry, desk.folder, desk.limits, total(dossiers.spent(entry.prices))) as teacher:
        dossiers.join(TeacherTerms(teacher=teacher.name, sent=dict(teacher.client.settings())))
        writer = Writer(teacher, dossiers, desk.window, attempts=desk.attempts, record_tokens=desk.record_tokens)
        found = Session({}, {}, {}, 0.0, 0)
        with ThreadPoolExecutor(desk.concurrency, thread_name_prefix="ptxbench-rationale") as pool:
            futures = {name: pool.submit(writer.write, subject) for name, subject in sorted(by_id.items())}
            try:
                for name, future in futures.items():
                    _add(found, name, future)
            except BaseException:
                # What was asked may still be answered and is stored then; nothing else is asked.
                teacher.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        progress = teacher.meter.progress()
    return found._replace(usd=progress.usd, tokens=progress.tokens)


def _add(session: Session, name: str, future: Future[Written | Refused | Left]) -> None:
    try:
        result = future.result()
    except InfrastructureError as error:
        session.left[name] = error.kind
        return
    if isinstance(result, Written):
        session.written[name] = result
    elif isinstance(result, Refused):
        session.refused[name] = result
    else:
        session.left[name] = result.reason


def read_kernels(path: Path) -> Sequence[Repair | Correct]:
    """Repairs, or for KernelGen correct turns, by what the first line of a file is.

    Raises InputError for a file that cannot be read, is of other records, is empty, or holds a repair that is not what
    its run says.
    """
    try:
        with path.open("rb") as file:
            keys = _keys(file.readline())
    except OSError as error:
        raise InputError(f"{path}: expected a file of records, found: {error.strerror}; check the path") from error
    wanted = f"{path}: expected kernels to explain, as `ptxbench fixit` writes to {REPAIRS} and {CORRECTS}"
    if "outcome" in keys:
        raise InputError(f"{wanted}, found failures; repair them first, and explain the {REPAIRS} of that")
    found = read_repairs(path) if "failure" in keys else read_lines(Correct, path)
    if not found:
        raise InputError(f"{wanted}, found none; see what the step before it printed")
    return found


def _keys(line: bytes) -> Collection[str]:
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else ()
    return ()


def rationales_of(repairs: Sequence[Repair | Correct], session: Session, teacher: str) -> list[Rationale]:
    """The records of what was written, sorted by id."""
    found = (
        Rationale(
            repair=repair,
            text=session.written[repair.id].text,
            teacher=teacher,
            attempts=session.written[repair.id].attempts,
            asked_sha256=session.written[repair.id].prompts,
        )
        for repair in repairs
        if repair.id in session.written
    )
    return sorted(found, key=lambda rationale: rationale.id)
