"""The trusted worker: runs library baselines over the same staging arena, behind the same requests as a sandbox.

It is a process of its own, with torch, so that a baseline's latency is read by the very procedure that reads a
candidate's: another process rewrites inputs and poisons outputs, hands over, and CUPTI in this process times the call.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from ptxbench.cases.defaults import REFERENCE_CALL
from ptxbench.profiler.arena import view_bytes
from ptxbench.profiler.baselines import bind
from ptxbench.profiler.bound_call import Bound
from ptxbench.profiler.reference_baseline import bind_reference
from ptxbench.profiler.sandbox import CONTEXT, Answers, Cupti, Recorder, announce, open_arena, restrict, serve_calls


class Arenas:
    """Mapped staging arenas by handle: CUDA IPC opens a handle once per process."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}

    def tensors(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job's tensors by name, over the arena."""
        import torch

        handle = job["handle"]
        if handle not in self._addresses:
            self._addresses[handle] = open_arena(handle)
        base = self._addresses[handle]
        return {
            tensor["name"]: view_bytes(base + tensor["offset"], tensor["nbytes"])
            .view(getattr(torch, tensor["dtype"]))
            .view(tensor["shape"])
            for tensor in job["tensors"]
        }

    def forget(self, handle: str) -> None:
        """Unmap an arena that the oracle is about to free."""
        from cuda.bindings import runtime as cudart

        address = self._addresses.pop(handle, None)
        if address is not None:
            cudart.cudaIpcCloseMemHandle(address)


def _planned(plan: Callable[[], str] | None) -> dict[str, Any]:
    import torch

    try:
        detail = plan() if plan else ""
        torch.cuda.synchronize()
    except Exception as error:  # whatever a library raises; only this is told to the oracle
        raise RuntimeError(f"planning: {type(error).__name__}: {error}") from error
    return {"detail": detail}


def _published(publish: Callable[[], None]) -> dict[str, Any]:
    import torch

    publish()
    torch.cuda.synchronize()
    return {}


def _bind(job: dict[str, Any], tensors: dict[str, Any]) -> Bound:
    if job["call"] == REFERENCE_CALL:
        return bind_reference(job, tensors)
    return bind(job["call"], tensors, causal=job["causal"], scalars=job["scalars"])


def _serve(channel: Connection, arenas: Arenas, recorder: Recorder) -> None:
    """Jobs until the channel closes or ``quit``."""
    while True:
        job = json.loads(channel.recv_bytes())
        if job.get("op") == "quit":
            return
        if job.get("op") == "forget":
            arenas.forget(job["handle"])
            continue
        answers = Answers(channel, job)
        try:
            bound = _bind(job, arenas.tensors(job))
        except Exception as error:
            answers.failed(error)
            answers.explain_refusal()
            continue
        answers.done()
        operations: dict[str, Callable[[], dict[str, Any]]] = {
            "collect": recorder.collect,
            "plan": partial(_planned, bound.plan),
            "publish": partial(_published, bound.publish),
        }
        if not serve_calls(channel, bound.call, recorder, answers, operations=operations):
            return
        gc.collect()


def main() -> None:
    """Serve jobs over the inherited channel."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    options = parser.parse_args()
    # A library that compiles its kernels writes large files.
    restrict(file_bytes=None)
    channel = Connection(options.fd)
    import torch

    announce(channel, "imported")
    if channel.recv_bytes() != CONTEXT:
        return
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    recorder = Recorder(Cupti())
    gc.disable()  # as in a sandbox
    announce(channel, "ready")
    _serve(channel, Arenas(), recorder)


if __name__ == "__main__":
    main()
