"""The repairs that ``--retrieval-from`` names, as entries of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ptxbench.adapt.model import RATIONALES, Rationale, Repair, read_lines
from ptxbench.adapt.retrieval import Corpus, Entry
from ptxbench.errors import InputError


def read_corpus(paths: Iterable[Path]) -> Corpus:
    """The repairs of some files, or of folders that hold a ``rationales.jsonl``.

    Raises InputError for a path without one, a broken file, no repair at all, and a repair that is there twice.
    """
    return Corpus(entry for path in paths for entry in _entries(path))


def _entries(path: Path) -> Iterator[Entry]:
    file = path / RATIONALES if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"--retrieval-from {path}: expected a file of rationales or a folder with {RATIONALES}, found none; "
            "write one with `ptxbench fixit explain`"
        )
    for rationale in read_lines(Rationale, file):
        if not isinstance(rationale.repair, Repair):
            continue  # KernelGen's have no failed kernel to be found by
        failure = rationale.repair.failure
        yield Entry(
            id=rationale.id,
            definition=failure.definition,
            arch=failure.origin.key.arch,
            run=failure.origin.run,
            run_created_at=failure.origin.run_created_at,
            failed=failure.source,
            note=rationale.text,
            kernel=rationale.repair.source,
        )
