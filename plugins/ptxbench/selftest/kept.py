"""What a self-test measured, kept in one file: evidence and what the judge needs of the build, by the source's hash.

``tests/evidence/selftest_h100.json`` is such a file; above ``PLAIN_BYTES`` it is compressed and called ``.json.gz``.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ptxbench.cases import Arch, Case
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.files import write_whole
from ptxbench.records import Build, Cubin, Evidence, KernelSass
from ptxbench.records.base import Record, Sha256, first_fault
from ptxbench.records.texts import placeless
from ptxbench.selftest.subjects import Subject
from ptxbench.verdict.instruction_counts import EXIT

FOLDER = Path("tests", "evidence")
PLAIN_BYTES = 1 << 20
WRITE_S = 15.0
"""Least time between two writings of a growing file, each of which takes a tenth of a second or two."""
REMEDY = "move the file away, or name another folder, and measure again"
MAX_LOG_CHARS = 1_000
"""Of a compiler's log: a verdict quotes its first error."""


class Kept(Record):
    """One kernel as it was built and measured."""

    name: str
    """``attacks/CLASS/NAME`` or ``honest/PATH``, for people: what answers is the hash."""
    source_sha256: Sha256
    case: str
    commit: str
    """Of the harness that measured, with ``+`` where files differed from it; ``unknown`` outside a repository."""
    kept_at: str
    """UTC, ISO 8601."""
    build: Build
    evidence: Evidence | None
    """None where nothing was to be measured."""
    without: tuple[str, ...] = ()
    """Defences that the verdict is asked for without. Empty in a normal self-test."""
    fault: str = ""
    """Of the machinery, which kept it from being measured."""
    seconds: float = 0.0
    """Wall time of the measurement."""


class KeptFile(Record):
    """The file."""

    schema_version: Literal[1] = 1
    arch: str
    entries: tuple[Kept, ...]


class Store:
    """Entries by name and defences off, over one file that is written whole."""

    def __init__(self, folder: Path | None, stem: str, arch: str) -> None:
        """``folder`` None keeps nothing on disk. Raises InputError for a file that cannot be read."""
        self._path = None if folder is None else folder / f"{stem}.json"
        self._arch = arch
        self._written_at = time.monotonic()
        self._entries: dict[tuple[str, tuple[str, ...]], Kept] = {}
        self.add(read(folder / f"{stem}.json", arch) if folder is not None else ())

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._entries.values())

    def add(self, entries: Iterable[Kept]) -> None:
        """Take entries over, in the place of those of the same name."""
        self._entries |= {(entry.name, entry.without): entry for entry in entries}

    def current(self, subject: Subject, without: tuple[str, ...] = ()) -> Kept | None:
        """What was measured of exactly this source on exactly this workload, or None."""
        found = self._entries.get((subject.name, without))
        sha256 = subject.candidate.sha256
        # What was built, and so what the evidence is of, is asked by itself: an entry may name one and hold another.
        if found is None or found.fault or not found.source_sha256 == found.build.candidate_sha256 == sha256:
            return None
        return found if _is_of(found, subject.case) else None

    def prune(self, names: Collection[str]) -> None:
        """Forget kernels of other names: they have left the corpora."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.name in names}

    def keep(self, entry: Kept) -> None:
        """Add an entry; the file is written now and then, and when ``write`` says so."""
        self.add((entry,))
        if time.monotonic() - self._written_at > WRITE_S:
            # What cannot be written now stays here, and ``write`` tries again.
            with suppress(OSError):
                self._write(self._path)

    def expect_writable(self) -> None:
        """Raises InputError for a folder where nothing can be kept, before anything was measured."""
        if self._path is not None:
            expect_writable(self._path.parent)

    def write(self) -> None:
        """Write the file, compressed if it is large; where that fails, into the temporary folder.

        Raises InfrastructureError("disk_full") that says where it is.
        """
        try:
            self._write(self._path)
        except OSError as error:
            assert self._path is not None
            told = f"{self._path}: cannot be written: {error.strerror}; {self._write_elsewhere()}"
            raise InfrastructureError("disk_full", told) from error

    def _write_elsewhere(self) -> str:
        assert self._path is not None
        try:
            folder = Path(tempfile.mkdtemp(prefix="ptxbench-selftest-"))
            self._write(folder / self._path.name)
        except OSError as error:
            return f"what was measured could not be kept in {tempfile.gettempdir()} either: {error.strerror}"
        return f"what was measured is kept in {folder}: go on with --record {folder}, or copy its file back"

    def _write(self, path: Path | None) -> None:
        """Raises OSError."""
        if path is None or not self._entries:
            return
        self._written_at = time.monotonic()
        ordered = tuple(self._entries[key] for key in sorted(self._entries))
        data = f"{KeptFile(arch=self._arch, entries=ordered).model_dump_json(exclude_defaults=True)}\n".encode()
        packed = path.with_suffix(".json.gz")
        if len(data) > PLAIN_BYTES:
            # Without a time of writing, so that equal entries are equal files.
            write_whole(packed, gzip.compress(data, mtime=0))
            path.unlink(missing_ok=True)
        else:
            write_whole(path, data)
            packed.unlink(missing_ok=True)


def expect_writable(folder: Path) -> None:
    """Raises InputError for a folder of ``--record`` where nothing can be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise InputError(
            f"--record: expected a folder that can be written, {folder} cannot: {error.strerror}; name another"
        ) from error


def stem_of(arch: str, *, without: bool = False) -> str:
    """Name of the file, less its suffix."""
    return f"selftest_without_{arch}" if without else f"selftest_{arch}"


def read(path: Path, arch: str | None = None) -> tuple[Kept, ...]:
    """Entries of a file, plain or compressed; none where there is no file.

    Raises InputError for a broken one, and for one of another architecture than ``arch``.
    """
    packed = path.with_suffix(".json.gz")
    path = packed if packed.exists() else path
    try:
        if not path.exists():
            return ()
        data = path.read_bytes()
        found = KeptFile.model_validate_json(gzip.decompress(data) if path == packed else data)
    except ValidationError as error:
        raise InputError(f"{path}: not what a self-test kept: {first_fault(error)}; {REMEDY}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: expected what a self-test kept, cannot be read: {error}; {REMEDY}") from error
    if arch is not None and found.arch != arch:
        raise InputError(f"{path}: expected what a self-test kept of {arch}, found that of {found.arch}; {REMEDY}")
    return found.entries


def _is_of(kept: Kept, case: Case) -> bool:
    evidence = kept.evidence
    if kept.case != case.name or kept.build.arch != case.arch.name:
        return False
    return evidence is None or (evidence.definition, evidence.workload_uuid) == (
        case.definition.name,
        case.workload.uuid,
    )


def slim_build(build: Build, arch: Arch) -> Build:
    """What the judge reads of a build: of opcodes only the target's, of a log its beginning."""
    cubins = tuple(_slim_cubin(cubin, arch) for cubin in build.cubins)
    log = build.log if build.timed_out or build.so_sha256 is None else ""
    return build.model_copy(
        update={
            "cubins": cubins,
            "log": log[:MAX_LOG_CHARS],
            "log_truncated": build.log_truncated or len(log) > MAX_LOG_CHARS,
            "resources": (),
        }
    )


def _slim_cubin(cubin: Cubin, arch: Arch) -> Cubin:
    kernels = tuple(
        KernelSass(
            kernel=kernel.kernel,
            opcodes={opcode: count for opcode, count in kernel.opcodes.items() if arch.selects(opcode)},
        )
        for kernel in cubin.kernels
    )
    return cubin.model_copy(update={"kernels": kernels})


def slim_evidence(evidence: Evidence | None, arch: Arch) -> Evidence | None:
    """What the judge reads of evidence, without folders of this machine: of instruction counts the target's, and those
    that tell how often a report counts a thread."""
    if evidence is None:
        return None
    found = evidence.instructions
    counts = tuple(count for count in found.counts if count.opcode == EXIT or arch.selects(count.opcode))
    instructions = found.model_copy(update={"counts": counts, "kernels": found.kernels or _kernels(evidence)})
    run = evidence.run.model_copy(update={"stages_ms": {}, "output_tail": evidence.run.output_tail[:200]})
    slim = evidence.model_copy(update={"instructions": instructions, "run": run})
    return Evidence.model_validate_json(json.dumps(_placeless(json.loads(slim.model_dump_json()))))


def _placeless(value: object) -> object:
    """A JSON value whose texts name no folder."""
    if isinstance(value, str):
        return placeless(value)
    if isinstance(value, list):
        return [_placeless(item) for item in value]
    if isinstance(value, dict):
        return {key: _placeless(item) for key, item in value.items()}
    return value


def _kernels(evidence: Evidence) -> tuple[str, ...]:
    return tuple(dict.fromkeys(count.kernel for count in evidence.instructions.counts))
