"""Evidence of earlier runs, for whoever repeats one on a machine that cannot measure."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ptxbench.agent.store import RunStore
from ptxbench.profiler import Health, Profiler, SafetyTool
from ptxbench.profiler.replay import EvidenceKey, evidence_key
from ptxbench.records import Evidence, InstructionEvidence, SafetyEvidence, ToolStatus, TurnKey

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.toolchain import Built


class RecordedProfiler:
    """Answers from the turns of ``runs``; where they have no evidence of exactly this device code, from ``rest``."""

    origin: Literal["measured", "replayed"] = "replayed"

    def __init__(self, runs: Iterable[RunStore], rest: Profiler) -> None:
        self._runs = tuple(runs)
        self._rest = rest
        self._index: dict[EvidenceKey, tuple[RunStore, TurnKey]] | None = None
        self._lock = threading.Lock()

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """The recorded evidence, or the other profiler's."""
        build = built.build
        key = EvidenceKey(
            case.definition.name, case.workload.uuid, case.arch.name, build.candidate_sha256, build.cubin_sha256
        )
        found = self._recorded().get(key)
        record = found[0].record(found[1]) if found is not None else None
        return record.evidence if record is not None else self._rest.evaluate(case, built)

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Recorded with the rest."""
        evidence = self.evaluate(case, built)
        return evidence.instructions if evidence is not None else self._rest.instructions(case, built)

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """Recorded with the rest."""
        evidence = self.evaluate(case, built)
        for safety in evidence.safety if evidence is not None else ():
            if safety.tool == tool:
                return safety
        return SafetyEvidence(tool=tool, status=ToolStatus.UNAVAILABLE, message="no stored evidence of this hash")

    def health(self) -> Health:
        """The other profiler's, with what was recorded."""
        health = self._rest.health()
        return health.model_copy(update={"message": f"{len(self._recorded())} recorded turns; {health.message}"})

    def close(self) -> None:
        """End the other profiler."""
        self._rest.close()

    def _recorded(self) -> dict[EvidenceKey, tuple[RunStore, TurnKey]]:
        with self._lock:
            if self._index is None:
                turns = [(run, stored.record) for run in self._runs for stored in run.turns()]
                self._index = {
                    evidence_key(record.evidence): (run, record.key)
                    for run, record in turns
                    if record.evidence is not None
                }
            return self._index
