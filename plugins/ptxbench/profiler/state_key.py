"""The name of a workload state: the same wherever it is asked for, in the oracle or outside."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.cases.case import Case


def state_key(case: Case) -> str:
    """A hash of all that a case says; equal cases share a state."""
    return hashlib.sha256(case.model_dump_json().encode()).hexdigest()[:24]
