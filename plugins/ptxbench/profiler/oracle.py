"""The oracle: one long-lived process per GPU, with torch and the frontier libraries, that owns the truth.

It answers one request at a time over a channel of ``multiprocessing.connection``: JSON in, JSON out. Every answer is
``{"result": ...}`` or ``{"fault": {"kind", "message"}}``, and ``states`` beside it: bytes by key of the workload states
that it holds, least recently used first.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import Any

from ptxbench.cases.case import Case
from ptxbench.cases.collection_case import read_case
from ptxbench.errors import InfrastructureError
from ptxbench.profiler import clocks, containment, defences, tools
from ptxbench.profiler.containment_probe import probe
from ptxbench.profiler.device import describe_device, device_uuid
from ptxbench.profiler.device_memory import ran_out
from ptxbench.profiler.endings import adopt_orphans, end_with
from ptxbench.profiler.environment import import_path
from ptxbench.profiler.evaluation import evaluate, hand_over_ns
from ptxbench.profiler.footprint import STATE_SHARE
from ptxbench.profiler.gpu_lock import gpu_lock
from ptxbench.profiler.qualification import Baselines
from ptxbench.profiler.spares import Spares
from ptxbench.profiler.state import StateCache, WorkloadState
from ptxbench.profiler.worker import CALL_TIMEOUT_S, Command, Worker
from ptxbench.trace.workload import ScalarInput

IDLE_POLL_S = 0.02


def baseline_worker() -> Worker:
    """Start the trusted worker. It inherits the environment: torch and the libraries may need any of it."""
    command = Command([sys.executable, "-P", "-m", "ptxbench.profiler.baseline_worker"])
    return Worker(command, environment=os.environ | {"PYTHONPATH": import_path()})


class Oracle:
    """State of the process. Methods named ``do_*`` are the operations."""

    def __init__(self, state_budget_bytes: int | None) -> None:
        import torch

        self.device = describe_device()
        # NVML takes its time at first, which no trial shall pay for.
        clocks.sample()
        torch.backends.cuda.matmul.allow_tf32 = False
        budget = int(self.device.memory_bytes * STATE_SHARE) if state_budget_bytes is None else state_budget_bytes
        self.baselines = Baselines(baseline_worker)
        self.states = StateCache(budget, self.baselines.forget)
        self._doubtful = False
        self._restless = False
        self.spares = self._contained()
        self.spares.replenish()

    def libraries(self) -> dict[str, str]:
        """Versions of what measures."""
        import torch

        versions = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
        for package in ("cupti-python", "apache-tvm-ffi", "cuda-bindings", "flashinfer-python"):
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = "missing"
        return versions

    def _state(self, case: Case) -> tuple[WorkloadState, bool]:
        if not case.arch.covers(self.device.compute_capability):
            raise InfrastructureError(
                "device_mismatch",
                f"{case.arch.name} needs a device of compute capability {case.arch.compute_capability}, "
                f"found {self.device.name} {self.device.compute_capability}",
            )
        return self.states.get(case)

    def _contained(self, *, again: bool = False) -> Spares:
        """Sandboxes inside of the layers that work here; with ``again`` those are found out anew."""
        return Spares(choice=containment.settled(probe, self.device.driver, again=again))

    def doubt(self) -> None:
        """A sandbox did not start: this machine may have changed since its layers were chosen."""
        self._doubtful = True

    def _settle_doubts(self) -> None:
        if self._doubtful:
            self._doubtful = False
            self.spares.close()
            self.spares = self._contained(again=True)

    def do_hello(self, request: dict[str, Any]) -> dict[str, Any]:
        """Identity of device and libraries."""
        del request
        device = self.device.model_dump(mode="json")
        return {"device": device, "libraries": self.libraries(), "uuid": device_uuid()}

    def do_evaluate(self, request: dict[str, Any]) -> dict[str, Any]:
        """RunEvidence of one candidate."""
        self._settle_doubts()
        state, cached = self._state(read_case(request["case"]))
        job = self._job(state, request)
        evidence = evaluate(state, job, self.spares, self.baselines, cached=cached)
        return evidence.model_dump(mode="json")

    def do_qualify(self, request: dict[str, Any]) -> dict[str, Any]:
        """BaselineMeasurement: the library compared with the reference on every checked draw and timed, all anew."""
        state, _ = self._state(read_case(request["case"]))
        state.baseline = self.baselines.measure(state, hand_over_ns(state, self.spares))
        return state.baseline.model_dump(mode="json")

    def do_instructions(self, request: dict[str, Any]) -> dict[str, Any]:
        """InstructionEvidence of one candidate."""
        self._warm_beside_tools()
        state, _ = self._state(read_case(request["case"]))
        return tools.count_instructions(state, self._job(state, request)).model_dump(mode="json")

    def do_sanitize(self, request: dict[str, Any]) -> dict[str, Any]:
        """SafetyEvidence of one candidate and one tool; memcheck runs the full workload, the rest shrunk axes."""
        self._warm_beside_tools()
        case = read_case(request["case"])
        state, _ = self._state(case if request["tool"] == "memcheck" else case.shrunk())
        limit_s = float(request["limit_s"]) if "limit_s" in request else None
        found = tools.sanitize(state, self._job(state, request), request["tool"], limit_s)
        if tools.keeps_memory(found):
            small, _ = self._state(case.shrunk())
            found = tools.measure_growth(small, self._job(small, request), found)
        return found.model_dump(mode="json")

    def _warm_beside_tools(self) -> None:
        """Nobody reads a clock while a tool runs."""
        self.spares.replenish()
        self.spares.warm(beside_candidate=True)

    @staticmethod
    def _job(state: WorkloadState, request: dict[str, Any]) -> dict[str, Any]:
        inputs = state.case.workload.inputs
        scalars = [
            [position, value.value]
            for position, name in enumerate(state.case.input_shapes())
            if isinstance(value := inputs[name], ScalarInput)
        ]
        return {
            "handle": state.arena.handle,
            "tensors": state.arena.describe(),
            "scalars": scalars,
            "so_path": request["so_path"],
            "so_sha256": request["so_sha256"],
            "symbol": request["symbol"],
        }

    def clear_up(self) -> None:
        """A request was answered: clear away what it used and see to the next, while the device is ours."""
        self._restless = False
        try:
            self.spares.used()
            self.spares.settle()
        except InfrastructureError:
            self._restless = True

    def rest(self) -> None:
        """Nobody asks for anything: have spares warmed up."""
        if self._restless:
            return
        try:
            # Another process may be timing on this device.
            with gpu_lock(timeout_s=0.0):
                self.spares.rest()
        except InfrastructureError as error:
            # The next evaluation meets it and says so; until then nothing is started again and again.
            self._restless = error.kind != "busy_device"

    def close(self) -> None:
        """End every process."""
        self.spares.close()
        self.baselines.close()


def answer(oracle: Oracle, request: dict[str, Any]) -> dict[str, Any]:
    """Run one operation; a fault of ours comes back typed, and the oracle lives on."""
    operation: Callable[[dict[str, Any]], dict[str, Any]] = getattr(oracle, f"do_{request['op']}")
    try:
        return {"result": operation(request)}
    except InfrastructureError as error:
        if error.kind == "sandbox_failed":
            oracle.doubt()
        return fault(error.kind, str(error))
    except Exception as error:
        if ran_out(error):
            return fault("out_of_device_memory", str(error)[:300])
        text = "".join(traceback.format_exception(error)[-3:])
        return fault("oracle_died", f"{type(error).__name__}: {error}\n{text}")


def fault(kind: str, message: str) -> dict[str, Any]:
    """A fault as the channel carries it."""
    return {"fault": {"kind": kind, "message": message}}


def serve(oracle: Oracle, channel: Connection) -> None:
    """Answer the next request, holding the device until what it used is cleared away."""
    request = json.loads(channel.recv_bytes())
    try:
        with nullcontext() if request["op"] == "hello" else gpu_lock():
            channel.send_bytes(json.dumps(answer(oracle, request) | {"states": oracle.states.held()}).encode())
            oracle.clear_up()
    except InfrastructureError as error:
        # Only taking the lock raises.
        channel.send_bytes(json.dumps(fault(error.kind, str(error))).encode())


def main() -> None:
    """Serve until the channel closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--state-budget-bytes", type=int)
    parser.add_argument("--call-timeout-s", type=float, default=CALL_TIMEOUT_S)
    parser.add_argument("--without", action="append", default=[], metavar="DEFENCE")
    options = parser.parse_args()
    defences.switch_off(options.without)
    Worker.call_timeout_s = options.call_timeout_s
    channel = Connection(options.fd)
    end_with(options.fd)
    adopt_orphans()
    try:
        oracle = Oracle(options.state_budget_bytes)
    except InfrastructureError as error:
        channel.send_bytes(json.dumps(fault(error.kind, str(error))).encode())
        return
    # What was imported lives as long as the process; looking through it for garbage takes tens of milliseconds.
    gc.collect()
    gc.freeze()
    try:
        while True:
            if not channel.poll(IDLE_POLL_S):
                oracle.rest()
                continue
            serve(oracle, channel)
    except EOFError:
        return
    finally:
        oracle.close()


if __name__ == "__main__":
    main()
