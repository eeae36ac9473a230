"""A candidate whose call did not end, called again in a sandbox that a debugger can look into.

CUPTI, which the sandboxes of an evaluation have, keeps cuda-gdb away: "The CUDA driver hit an internal error while
attaching to the application" (H200, driver 580, CUDA 13.0). So the calls are made once more without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ptxbench.profiler import hang
from ptxbench.profiler.state import WorkloadState
from ptxbench.profiler.worker import Worker, sandbox_command

SETTLE_S = 2.0
"""A call that has not ended by then is looked at. What waits in it waits from its first milliseconds."""
RETRACE_TIMEOUT_S = 30.0
"""For the start and all calls: a kernel that is merely slow in each of them is not followed to its end."""


def start() -> Worker:
    """A sandbox without CUPTI."""
    return Worker(sandbox_command("--under-tool"))


def look_again(state: WorkloadState, job: dict[str, Any], start: Callable[[], Worker] = start) -> hang.Waiting:
    """Where the threads are when one of as many calls as a trial has does not end again. No failure is an exception."""
    try:
        worker = start()
        try:
            return _retrace(state, job, worker)
        finally:
            worker.close()
    except Exception as error:  # whatever it is, also a device without memory: the verdict on the first run stands
        return hang.unknown(f"its calls could not be made once more: {error}")


def _retrace(state: WorkloadState, job: dict[str, Any], worker: Worker) -> hang.Waiting:
    deadline = worker.deadline = time.monotonic() + RETRACE_TIMEOUT_S
    worker.wait_ready()
    worker.load(job)
    state.arena.arm()
    for _ in range(1 + state.case.warmup + state.case.iterations):
        state.stage(state.checked[0])
        worker.begin_call()
        if not worker.answered(SETTLE_S):
            return hang.look(worker.pid, worker.work)
        worker.finish_call()
        if time.monotonic() > deadline:
            break
    return hang.Waiting(unknown="when its calls were made once more, each of them ended")
