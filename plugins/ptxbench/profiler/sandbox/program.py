"""The candidate's process: short-lived, torch-free, holding nothing worth stealing.

It is started before its candidate is known, gets one job over one private channel, runs the candidate's calls on
request and dies. It imports the standard library, ``cuda.bindings``, ``tvm_ffi`` and ``cupti`` only: no module of ours.

Channel: length-prefixed messages of ``multiprocessing.connection``. ``{"stage": "imported"}`` comes first; ``CONTEXT``
asks for the CUDA context, which nobody may create beside a timing; ``{"stage": "ready"}`` answers, with the layers
around this process. A job, in JSON, brings a secret for the answers from then on (``sealing``). ``CALL`` and a nonce
ask for a call, ``WARM_UP``, a nonce and a number for so many that nobody times: a status of fixed size answers. All
else is JSON with ``op``. Device memory is the oracle's staging arena, opened through CUDA IPC.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from typing import Any

from .activities import Cupti, Recorder
from .binding import check, load_candidate, load_null
from .layers import BASE, Layers, Place, close_calls, enclose
from .loading import Loads
from .messages import CONTEXT
from .serving import Answers, announce, serve_calls


def import_libraries(*, record: bool) -> None:
    """The part of the start that needs no device."""
    # tvm_ffi imports torch where it can: seconds, and everything that a candidate's process must not hold.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi  # noqa: F401
    from cuda.bindings import runtime  # noqa: F401

    if record:
        from cupti import cupti  # noqa: F401


def warm_up(*, record: bool) -> tuple[Recorder | None, Loads | None]:
    """Pay for the CUDA context and CUPTI before there is a job. Returns what watches the candidate, if anything may."""
    from cuda.bindings import runtime as cudart

    check(cudart.cudaSetDevice(0))
    check(cudart.cudaFree(0))
    cupti = Cupti() if record else None
    recorder = Recorder(cupti) if cupti else None
    # The first activity, timestamp and flush initialize CUPTI lazily; a candidate's first call must not pay for it.
    call, _ = load_null()
    call()
    check(cudart.cudaDeviceSynchronize())
    if recorder:
        recorder.now()
        recorder.collect()
    return recorder, Loads(cupti.library) if cupti else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int)
    where.add_argument("--connect")
    where.add_argument("--describe", action="store_true", help="say which layers there are, and end")
    parser.add_argument("--under-tool", action="store_true", help="no CUPTI: the tool owns it")
    parser.add_argument("--private", action="store_true", help="exact-size buffers instead of the arena's")
    parser.add_argument("--layers", default="", help="comma-separated layers to put around this process")
    parser.add_argument("--hide", action="append", default=[], help="a folder that the candidate shall not see")
    return parser.parse_args()


def _enclosed(options: argparse.Namespace) -> Layers:
    # It is started in its place to work, within its folder.
    work = os.getcwd()
    wanted = {*BASE, *filter(None, options.layers.split(","))}
    return enclose(wanted, Place(os.path.dirname(work), work, tuple(options.hide)))


def main() -> None:
    """Serve one job."""
    options = _arguments()
    layers = _enclosed(options)
    if options.describe:
        close_calls(layers, tool=False)
        sys.stdout.write(json.dumps(layers.describe()))
        return
    channel = Connection(options.fd) if options.fd is not None else Client(options.connect, "AF_UNIX")
    record = not options.under_tool
    import_libraries(record=record)
    announce(channel, "imported")
    if channel.recv_bytes() != CONTEXT:
        return
    recorder, loads = warm_up(record=record)
    gc.disable()  # collecting garbage in the middle of a call would be taken for its work
    close_calls(layers, tool=options.under_tool)
    announce(channel, "ready", **layers.describe())
    job = json.loads(channel.recv_bytes())
    if job.get("op") == "quit":
        return
    answers = Answers(channel, job)
    if loads:
        loads.begin()
    try:
        call, after = load_null(job.get("handle")) if job.get("null") else load_candidate(job, private=options.private)
    except Exception as error:
        answers.failed(error)
        answers.explain_refusal()
        return
    if recorder:
        recorder.collect()  # loading is no work of a call
    answers.done()
    operations: dict[str, Callable[[], dict[str, Any]]] = {}
    if recorder:
        operations["collect"] = recorder.collect
    if loads:
        operations |= {"loaded": loads.tell, "image": loads.next_image}
    serve_calls(channel, call, recorder, answers, after=after, operations=operations)
