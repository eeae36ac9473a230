"""The record of a turn that a fault of the machinery kept from being judged."""

from __future__ import annotations

from ptxbench.records import InfrastructureFault, TurnKey, TurnRecord
from ptxbench.verdict import judge_infrastructure


def fault_record(
    key: TurnKey, fault: InfrastructureFault, *, definition: str, workload_uuid: str = "", variant_name: str = ""
) -> TurnRecord:
    """Nothing but what the turn was and what kept it. Empty where even that is not known."""
    return TurnRecord(
        key=key,
        definition=definition,
        workload_uuid=workload_uuid,
        variant_name=variant_name,
        origin="none",
        source_sha256=None,
        build=None,
        evidence=None,
        evidence_origin="none",
        verdict=judge_infrastructure(fault),
        fault=fault,
    )
