"""How far an evaluation came, without saying which calls are checked."""

from __future__ import annotations

from ptxbench.cases import Case
from ptxbench.records import RunEvidence

_CALLS = {
    "load": "It ended while the object was being loaded; no call was made.",
    "check": "It ended in the first call of trial {trial}, the one whose result is checked.",
    "time": "It ended in the warm-up or timed calls of trial {trial}, after a first call with a right result.",
    "drift": "It ended after all calls of the kernel.",
}


def progress(run: RunEvidence, case: Case) -> str:
    """In which call it ended; empty where the record does not say."""
    call = _CALLS.get(run.stage)
    if call is None:
        return ""
    before = len(run.trials)
    done = f" {before} of {case.trials} trials had gone well before." if before else ""
    return call.format(trial=before + 1) + done
