"""Keeping what a GPU measured beside the committed kernels, where machines without one find it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ptxbench.agent.run_names import resolve_run
from ptxbench.agent.store import RunStore
from ptxbench.errors import InputError
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, save_evidence
from ptxbench.records import Candidate, TurnRecord


class Kept(NamedTuple):
    """One turn's evidence, written or not."""

    record: TurnRecord
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
    return [_keep(stored.record, into) for stored in store.turns()]


def _keep(record: TurnRecord, into: Path) -> Kept:
    if record.evidence is None or record.evidence_origin != "measured":
        return Kept(record, None, "it was not measured in this run")
    kernel = into / record.key.arch / record.definition / "kernel.cu"
    try:
        source = kernel.read_text(encoding="utf-8")
    except OSError:
        return Kept(record, None, f"there is no {kernel}")
    if Candidate(source=source).sha256 != record.evidence.candidate_sha256:
        return Kept(record, None, f"{kernel} is not the source that was measured")
    path = kernel.with_name(f"{kernel.stem}{EVIDENCE_SUFFIX}")
    try:
        save_evidence(record.evidence, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; free space or choose another --into") from error
    return Kept(record, path, "")
