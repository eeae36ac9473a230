"""Results of sanitizers, kept between runs: what was checked before is not checked again.

A result answers for exactly what decides it: the shared object, byte for byte, and so its device code and the host code
that chooses grids and allocates; the definition, the axes' values and where inputs come from; the tool, its version and
our code around it; the kind of device and its driver. Device code alone is not enough, since a bound may be kept or
broken by the grid that host code chooses. What is drawn at random is no part of it: a finding that depends on it may be
missed the second time as it may be the first. What was given is: offsets and page numbers decide what is read. Tools
that failed, or that a candidate computed something else under, are tried again.

Layout: ``safety/KK/KEY.json`` in PTXBench's cache folder, each file whole or absent.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import ValidationError

from ptxbench import __version__
from ptxbench.files import write_whole
from ptxbench.records import DeviceIdentity, Record, SafetyEvidence, SafetyTool, ToolStatus
from ptxbench.toolchain import default_cache_dir

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

MOST_IN_SHARD = 128
"""Entries in one of the 256 folders; a few kB each. The oldest go first."""


class CheckedObject(NamedTuple):
    """What a tool's result answers for."""

    so_sha256: str
    cubin_sha256: str
    definition_sha256: str
    workload_uuid: str
    arch: str
    axes: tuple[tuple[str, int], ...]
    inputs_sha256: str
    """Of how inputs are made, of scalars, and of the files and functions that a collection has for others."""
    tool: SafetyTool
    tool_version: str
    harness: str
    device: str
    driver: str

    @property
    def key(self) -> str:
        """Name of its entry."""
        return hashlib.sha256(json.dumps(self._asdict(), sort_keys=True).encode()).hexdigest()


class _Entry(Record):
    """One file."""

    schema_version: Literal[1] = 1
    checked: dict[str, str]
    """What it answers for, in the words of ``CheckedObject``; compared whole, so that no two keys can share a file."""
    checked_at: str
    """UTC, ISO 8601."""
    evidence: SafetyEvidence


def checked_object(
    case: Case, built: Built, tool: SafetyTool, *, tool_version: str, device: DeviceIdentity
) -> CheckedObject | None:
    """What a check of this build would answer for; None for a build without an object."""
    build = built.build
    if build.so_sha256 is None or build.cubin_sha256 is None:
        return None
    # memcheck, too, looks at the shrunk workload where memory is kept.
    axes = {**case.workload.axes, **{f"shrunk {name}": size for name, size in case.shrunk().workload.axes.items()}}
    return CheckedObject(
        so_sha256=build.so_sha256,
        cubin_sha256=build.cubin_sha256,
        definition_sha256=hashlib.sha256(case.definition.model_dump_json().encode()).hexdigest(),
        workload_uuid=case.workload.uuid,
        arch=case.arch.name,
        axes=tuple(sorted(axes.items())),
        inputs_sha256=_inputs_identity(case),
        tool=tool,
        tool_version=tool_version,
        harness=harness_identity(),
        device=f"{device.name} {device.compute_capability}",
        driver=f"{device.driver} {device.cuda_runtime}",
    )


def _inputs_identity(case: Case) -> str:
    """``blobs`` and ``made`` are of a collection's cases alone."""
    sources = case.model_dump(mode="json", include={"input_recipe", "blobs", "made"})
    sources["inputs"] = case.workload.model_dump(mode="json", include={"inputs"})
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()


@cache
def harness_identity() -> str:
    """Version of PTXBench and hash of the code that starts tools, stages inputs and reads reports."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")) + sorted(folder.rglob("*.cu")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return f"{__version__} {digest.hexdigest()}"


class SafetyCache:
    """Entries on disk, for several threads and processes. What cannot be read or written is checked again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def default(cls) -> Self:
        """In PTXBench's cache folder (``PTXBENCH_CACHE``)."""
        return cls(default_cache_dir() / "safety")

    def load(self, checked: CheckedObject) -> SafetyEvidence | None:
        """The earlier result with the day it is of; None where there is none of exactly this."""
        try:
            entry = _Entry.model_validate_json(self._path(checked).read_bytes())
        except (OSError, ValidationError):
            return None
        if entry.checked != _words(checked) or entry.evidence.tool != checked.tool:
            return None
        return entry.evidence.model_copy(update={"checked_before": entry.checked_at})

    def store(self, checked: CheckedObject, evidence: SafetyEvidence, *, at: str) -> None:
        """Keep a result that says something; ``at`` is when it was found, UTC."""
        if evidence.status is not ToolStatus.OK or evidence.kept_unknown or evidence.checked_before:
            return
        if evidence.outputs_match is False and not evidence.findings:
            return
        path = self._path(checked)
        entry = _Entry(checked=_words(checked), checked_at=at, evidence=evidence)
        # A full disk costs time later and no result now.
        with suppress(OSError):
            write_whole(path, entry.model_dump_json().encode())
            self._evict(path.parent)

    def _path(self, checked: CheckedObject) -> Path:
        key = checked.key
        return self._folder / key[:2] / f"{key}.json"

    @staticmethod
    def _evict(shard: Path) -> None:
        entries = list(shard.glob("*.json"))
        if len(entries) <= MOST_IN_SHARD:
            return
        ages = []
        for entry in entries:
            with suppress(OSError):  # removed by another process meanwhile
                ages.append((entry.stat().st_mtime, entry))
        for _, entry in sorted(ages)[: len(entries) - MOST_IN_SHARD]:
            entry.unlink(missing_ok=True)


def _words(checked: CheckedObject) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in checked._asdict().items()}
