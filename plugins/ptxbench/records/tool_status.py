"""How a run of Nsight Compute or compute-sanitizer ended."""

from __future__ import annotations

from enum import StrEnum


class ToolStatus(StrEnum):
    """How a tool's run ended. Only ``ok`` carries results."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    NOT_RUN = "not_run"
