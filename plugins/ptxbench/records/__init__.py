"""The frozen records that pass between rooms. Every room may import this one; it imports none."""

from ptxbench.records.base import Record, Sha256
from ptxbench.records.build import (
    Build,
    BuildStatus,
    Cubin,
    Finding,
    KernelResources,
    KernelSass,
    ToolchainIdentity,
)
from ptxbench.records.candidate import Candidate, Language
from ptxbench.records.evidence import (
    BaselineMeasurement,
    CheckedCall,
    DeviceIdentity,
    Evidence,
    InstructionCount,
    InstructionEvidence,
    KernelLaunch,
    OutputComparison,
    RunEvidence,
    RunStatus,
    SafetyEvidence,
    SafetyFinding,
    Timing,
    ToolStatus,
    Trial,
)
from ptxbench.records.turn import InfrastructureFault, TurnKey, TurnRecord
from ptxbench.records.verdict import Outcome, Safe, Target, Verdict

__all__ = [
    "BaselineMeasurement",
    "Build",
    "BuildStatus",
    "Candidate",
    "CheckedCall",
    "Cubin",
    "DeviceIdentity",
    "Evidence",
    "Finding",
    "InfrastructureFault",
    "InstructionCount",
    "InstructionEvidence",
    "KernelLaunch",
    "KernelResources",
    "KernelSass",
    "Language",
    "Outcome",
    "OutputComparison",
    "Record",
    "RunEvidence",
    "RunStatus",
    "Safe",
    "SafetyEvidence",
    "SafetyFinding",
    "Sha256",
    "Target",
    "Timing",
    "ToolStatus",
    "ToolchainIdentity",
    "Trial",
    "TurnKey",
    "TurnRecord",
    "Verdict",
]
