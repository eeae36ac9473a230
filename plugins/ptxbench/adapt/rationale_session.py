"""One session of a reasoning teacher over many subjects."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.defaults import ATTEMPTS, RECORD_TOKENS
from ptxbench.adapt.dossier import Dossiers, TeacherTerms
from ptxbench.adapt.model import Correct, Rationale, Repair, read_lines
from ptxbench.adapt.rationale import Left, Refused, Subject, Writer, Written
from ptxbench.adapt.rationale_rules import Window
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
        raise InputError("expected each repair once, found one twice; name each file once")
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


def read_kernels(path: Path) -> list[Repair | Correct]:
    """Repairs, or for KernelGen correct turns, by what the first line of a file is. Raises InputError."""
    try:
        with path.open("rb") as file:
            is_repair = b'"failure":{' in file.readline().replace(b" ", b"")
    except OSError as error:
        raise InputError(f"{path}: expected a file of records, found: {error.strerror}; check the path") from error
    return [*read_lines(Repair, path)] if is_repair else [*read_lines(Correct, path)]


def subject_of(repair: Repair | Correct) -> Subject:
    """What the rationale of a kernel is of."""
    if isinstance(repair, Correct):
        return Subject(repair.id, repair.prompt, None, "", repair.source)
    failure = repair.failure
    return Subject(repair.id, failure.prompt, failure.source, failure.feedback, repair.source)


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
