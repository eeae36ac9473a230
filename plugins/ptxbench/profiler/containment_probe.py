"""Whether a candidate's process works on the device inside of a set of layers: a real one, over a real arena."""

from __future__ import annotations

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.arena import Arena, TensorSpec
from ptxbench.profiler.containment import Choice
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.worker import Worker, sandbox_command

START_TIMEOUT_S = 15.0
"""A context takes 0.5 s (H200). Even with some layers that hang, the oracle has to be there within its own time."""
CALL_TIMEOUT_S = 5.0
PROBED_CALLS = 3
_PATTERN = 0x5A


def probe(layers: tuple[str, ...]) -> str:
    """Start a sandbox, have it open an arena of this process and write there, and read what CUPTI recorded.

    Returns what went wrong; empty if the oracle sees what was written and the recording is whole.
    """
    arena = Arena((TensorSpec("word", (1,), "int32", True),))
    try:
        arena.bytes.fill_(_PATTERN)
        arena.wait()
        return _try(arena, layers)
    finally:
        arena.close()


def _try(arena: Arena, layers: tuple[str, ...]) -> str:
    try:
        worker = Worker(sandbox_command(choice=Choice(layers=layers)))
        try:
            worker.wait_ready(START_TIMEOUT_S)
            worker.load({"null": True, "handle": arena.handle}, CALL_TIMEOUT_S)
            for _ in range(PROBED_CALLS):
                worker.call(CALL_TIMEOUT_S)
            recording = worker.collect(PROBED_CALLS)
        finally:
            worker.close()
    except (InfrastructureError, WorkerError) as error:
        return str(error)
    if not all(recording.activities):
        return "CUPTI saw nothing of its work"
    arena.wait()
    return "" if int(arena.bytes[0]) == 0 else "what it wrote to shared device memory did not arrive"
