"""What a run folder is a run of: kept in its ``run.json``, so that two protocols never mix in one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ptxbench.records import Record, Sha256

if TYPE_CHECKING:
    from ptxbench.cases import Case


class RunIdentity(Record):
    """The content of ``run.json``."""

    schema_version: Literal[1] = 1
    created_at: str
    """UTC, ISO 8601."""
    ptxbench: str
    """Version that created the folder."""
    suites: dict[str, Sha256]
    """Name -> ``suite_identity`` of every suite that has turns here."""
    turns: dict[str, int] = Field(default_factory=dict)
    """Model -> turns that each of its trajectories was given, the most of all sessions. Rates count turns that never
    happened, so whoever repeats the run must know how many there could have been."""


def suite_identity(cases: Iterable[Case]) -> str:
    """Hash of everything that a suite says: definitions, workloads, tolerances, protocol numbers, architectures.

    A turn measured under another content is another experiment, even if its key is the same.
    """
    content = [case.model_dump(mode="json") for case in sorted(cases, key=lambda case: (case.name, case.arch.name))]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
