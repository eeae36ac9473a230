"""Stored evidence: what a machine without a GPU judges.

Evidence is found by the hashes of what was measured, never by name: source, device code, workload and
architecture must all agree. An edited kernel therefore has no evidence, and its verdict is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import ValidationError

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.profiler.protocol import Health, SafetyTool
from ptxbench.records import Evidence, InstructionEvidence, SafetyEvidence, ToolStatus

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

EVIDENCE_SUFFIX = ".evidence.json"


class EvidenceKey(NamedTuple):
    """What was measured: nothing here is a name that two different kernels could share."""

    definition: str
    workload_uuid: str
    arch: str
    candidate_sha256: str
    cubin_sha256: str | None


def evidence_key(evidence: Evidence) -> EvidenceKey:
    """The key under which a stored record answers."""
    return EvidenceKey(
        evidence.definition,
        evidence.workload_uuid,
        evidence.arch,
        evidence.candidate_sha256,
        evidence.cubin_sha256,
    )


def load_evidence(path: Path) -> Evidence:
    """Read one record. Raises InputError that names the file and what was found, in a broken one also the field."""
    try:
        return Evidence.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InputError(
            f"{path}: not an evidence record: {field}: {first['msg']} (found {str(first['input'])[:80]!r}); "
            "measure again or remove the file"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: expected an evidence record, cannot be read: {error.strerror}; make it readable or remove it"
        ) from error


def save_evidence(evidence: Evidence, path: Path) -> None:
    """Write one record whole or not at all. ``path`` ends in ``EVIDENCE_SUFFIX``, or replay will not find it.

    Raises OSError.
    """
    write_whole(path, f"{evidence.model_dump_json()}\n".encode())


def find_evidence(roots: Iterable[Path]) -> Iterator[Path]:
    """Every ``*.evidence.json`` under the given folders, sorted, so that replay is the same everywhere."""
    for root in roots:
        yield from sorted(root.rglob(f"*{EVIDENCE_SUFFIX}"))


class ReplayProfiler:
    """Answers from stored evidence. The newest record of a key wins."""

    origin: Literal["measured", "replayed"] = "replayed"

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._index: dict[EvidenceKey, Evidence] | None = None

    def _evidence(self) -> dict[EvidenceKey, Evidence]:
        if self._index is None:
            records = sorted(
                (load_evidence(path) for path in find_evidence(self._roots)), key=lambda record: record.measured_at
            )
            self._index = {evidence_key(record): record for record in records}
        return self._index

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """The stored record of exactly this device code on this workload, or None."""
        key = EvidenceKey(
            case.definition.name,
            case.workload.uuid,
            case.arch.name,
            built.build.candidate_sha256,
            built.build.cubin_sha256,
        )
        return self._evidence().get(key)

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Stored with the rest; a record without counts stays without."""
        evidence = self.evaluate(case, built)
        if evidence is None:
            return InstructionEvidence(status=ToolStatus.UNAVAILABLE, message="no stored evidence of this hash")
        return evidence.instructions

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """Stored with the rest."""
        evidence = self.evaluate(case, built)
        for safety in evidence.safety if evidence else ():
            if safety.tool == tool:
                return safety
        return SafetyEvidence(tool=tool, status=ToolStatus.UNAVAILABLE, message="no stored evidence of this hash")

    def health(self) -> Health:
        """How many records there are."""
        return Health(kind="replay", device=None, message=f"{len(self._evidence())} stored evidence records")

    def close(self) -> None:
        """Nothing to end."""
