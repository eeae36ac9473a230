"""Keeping what a GPU measured beside the committed kernels, where machines without one find it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ptxbench.agent.run_names import resolve_run
from ptxbench.agent.store import RunStore
from ptxbench.agent.turn_files import DamagedTurn, StoredTurn
from ptxbench.errors import InputError
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, save_evidence
from ptxbench.records import Candidate


class Kept(NamedTuple):
    """One turn's evidence, written or not."""

    turn: str
    """Its id, or where its damaged record lies."""
    path: Path | None
    reason: str
    """Why nothing was written; empty where it was."""


def keep_evidence(root: Path, run: str, into: Path) -> list[Kept]:
    """Write the measured evidence of a run to ``INTO/<arch>/<definition>/kernel.evidence.json``.

    Only beside the very source that was measured: a ``kernel.cu`` there with the same hash. An earlier record of that
    kernel is replaced. Raises InputError for a run that does not exist, a folder that does not, or an unwritable one.
    """
    if not into.is_dir():
        raise InputError(f"--into {into}: expected a folder that holds <arch>/<definition>/kernel.cu, found none")
    path = Path(run)
    store = RunStore.read(path if path.is_dir() else resolve_run(root, run))
    return [_keep(entry, into) for entry in store.entries()]


def _keep(entry: StoredTurn | DamagedTurn, into: Path) -> Kept:
    if isinstance(entry, DamagedTurn):
        return Kept(str(entry.path), None, f"it is damaged: {entry.reason}")
    record = entry.record
    turn = str(record.key)
    if record.evidence is None or record.evidence_origin != "measured":
        return Kept(turn, None, "it was not measured in this run")
    kernel = into / record.key.arch / record.definition / "kernel.cu"
    reason = _other_source(kernel, record.evidence.candidate_sha256)
    if reason:
        return Kept(turn, None, reason)
    path = kernel.with_name(f"{kernel.stem}{EVIDENCE_SUFFIX}")
    try:
        save_evidence(record.evidence, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; free space or choose another --into") from error
    return Kept(turn, path, "")


def _other_source(kernel: Path, sha256: str) -> str:
    """Why ``kernel`` is not the source of that hash; empty where it is."""
    try:
        # Not as text: that would read other newlines than were measured.
        source = kernel.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no {kernel}"
    except UnicodeDecodeError as error:
        return f"{kernel} cannot be read: expected UTF-8 text, found byte {error.start} that is not"
    except OSError as error:
        return f"{kernel} cannot be read: {error.strerror}"
    return "" if Candidate(source=source).sha256 == sha256 else f"{kernel} is not the source that was measured"
