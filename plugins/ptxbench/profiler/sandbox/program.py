"""The candidate's process: short-lived, torch-free, holding nothing worth stealing.

It is started before its candidate is known, gets one job over one private channel, runs the candidate's calls on
request and dies. It imports the standard library, ``cuda.bindings``, ``tvm_ffi`` and ``cupti`` only: no module of ours.

Channel: length-prefixed messages of ``multiprocessing.connection``. ``{"stage": "imported"}`` comes first; ``CONTEXT``
asks for the CUDA context, which nobody may create beside a timing; ``{"stage": "ready"}`` answers. ``CALL`` asks for a
call, ``WARM_UP`` and a number for so many that nobody times; ``OK`` or ``{"error", "code"}`` answers. All else is JSON
with ``op``. Device memory is the oracle's staging arena, opened through CUDA IPC.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from multiprocessing.connection import Client, Connection

from .activities import Cupti, Recorder
from .binding import check, load_candidate, load_null
from .limits import restrict
from .messages import CONTEXT, OK
from .serving import announce, failure, serve_calls


def import_libraries(*, record: bool) -> None:
    """The part of the start that needs no device."""
    # tvm_ffi imports torch where it can: seconds, and everything that a candidate's process must not hold.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi  # noqa: F401
    from cuda.bindings import runtime  # noqa: F401

    if record:
        from cupti import cupti  # noqa: F401


def warm_up(*, record: bool) -> Recorder | None:
    """Pay for the CUDA context and CUPTI before there is a job."""
    from cuda.bindings import runtime as cudart

    check(cudart.cudaSetDevice(0))
    check(cudart.cudaFree(0))
    recorder = Recorder(Cupti()) if record else None
    # The first activity, timestamp and flush initialize CUPTI lazily; a candidate's first call must not pay for it.
    # Freed again, or a leak report would be of our own.
    word = int(check(cudart.cudaMalloc(4)))
    check(cudart.cudaMemsetAsync(word, 0, 4, 0))
    check(cudart.cudaDeviceSynchronize())
    check(cudart.cudaFree(word))
    if recorder:
        recorder.now()
        recorder.collect()
    return recorder


def main() -> None:
    """Serve one job."""
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int)
    where.add_argument("--connect")
    parser.add_argument("--under-tool", action="store_true", help="no CUPTI: the tool owns it")
    parser.add_argument("--private", action="store_true", help="exact-size buffers instead of the arena's")
    options = parser.parse_args()
    restrict()
    channel = Connection(options.fd) if options.fd is not None else Client(options.connect, "AF_UNIX")
    record = not options.under_tool
    import_libraries(record=record)
    announce(channel, "imported")
    if channel.recv_bytes() != CONTEXT:
        return
    recorder = warm_up(record=record)
    gc.disable()  # collecting garbage in the middle of a call would be taken for its work
    announce(channel, "ready")
    job = json.loads(channel.recv_bytes())
    if job.get("op") == "quit":
        return
    try:
        bound = load_null() if job.get("null") else load_candidate(job, private=options.private)
    except Exception as error:
        channel.send_bytes(failure(error))
        return
    if recorder:
        recorder.collect()  # loading is no work of a call
    channel.send_bytes(OK)
    collect = {"collect": recorder.collect} if recorder else {}
    serve_calls(channel, bound.call, recorder, after=bound.after, operations={**bound.operations, **collect})
