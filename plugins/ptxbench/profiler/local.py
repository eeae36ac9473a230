"""The local profiler: this machine's GPU, through an oracle process that is started on first use."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ptxbench import __version__
from ptxbench.errors import InfrastructureError
from ptxbench.profiler import defences
from ptxbench.profiler.device import device_present
from ptxbench.profiler.device_queue import DeviceQueue
from ptxbench.profiler.environment import import_path
from ptxbench.profiler.protocol import Health
from ptxbench.profiler.safety_cache import CheckedObject, SafetyCache, checked_object
from ptxbench.profiler.tools import find_tool, tool_version
from ptxbench.records import (
    BaselineMeasurement,
    DeviceIdentity,
    Evidence,
    InstructionEvidence,
    RunEvidence,
    SafetyEvidence,
    SafetyTool,
)

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 2400.0
"""Longer than any evaluation: ``LOCK_TIMEOUT_S``, references, baseline, two attempts of ``EVALUATION_TIMEOUT_S`` and a
look at a hang."""
ENTRY_SYMBOL = "run"
"""The kernel ABI: one TVM-FFI export of this name (PROTOCOL 6)."""


class LocalProfiler:
    """Implements ``Profiler`` over one oracle. Calls from several threads take turns (``DeviceQueue``)."""

    origin: Literal["measured", "replayed"] = "measured"

    def __init__(
        self,
        *,
        root: Path,
        state_budget_bytes: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
        without: Iterable[str] = (),
        call_timeout_s: float | None = None,
        safety_cache: SafetyCache | None = None,
        visible: str | None = None,
    ) -> None:
        """Raises InfrastructureError("no_device"). ``state_budget_bytes=0`` keeps no state between evaluations; without
        ``safety_cache`` every sanitizer runs.

        Once ``stopped`` says so, evaluations that wait for the device raise InfrastructureError("stopped").
        ``without`` names defences to switch off (InputError for unknown ones) and ``call_timeout_s`` shortens the time
        for one call; both are for the self-test, and no run of the benchmark gives them.
        ``visible`` is what CUDA_VISIBLE_DEVICES names to the oracle and its workers; None: what it names here.
        """
        self._without = defences.known(without)
        self._call_timeout_s = call_timeout_s
        if not device_present():
            raise InfrastructureError(
                "no_device",
                "--profiler local: expected a CUDA device and driver, found none; use --profiler replay here",
            )
        self._root = root
        self._state_budget_bytes = state_budget_bytes
        self._safety_cache = safety_cache
        self._queue = DeviceQueue(stopped)
        self.visible = visible
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Connection | None = None
        self._device: DeviceIdentity | None = None
        self._libraries: dict[str, str] = {}
        self._states: dict[str, int] = {}
        self._uuid: str | None = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        arguments = [sys.executable, "-P", "-m", "ptxbench.profiler.oracle", "--fd", str(theirs.fileno())]
        own_device = {} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible}
        if self._state_budget_bytes is not None:
            arguments += ["--state-budget-bytes", str(self._state_budget_bytes)]
        if self._call_timeout_s is not None:
            arguments += ["--call-timeout-s", str(self._call_timeout_s)]
        arguments += [f"--without={name}" for name in self._without]
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            env=os.environ | own_device | {"PYTHONPATH": import_path()},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        self._channel = Connection(ours.detach())
        try:
            hello = self._exchange({"op": "hello"}, START_TIMEOUT_S)
        except InfrastructureError:
            # An oracle that could not start has ended; the next request starts another.
            self._stop()
            raise
        self._device = DeviceIdentity.model_validate_json(json.dumps(hello["device"]))
        self._libraries = hello["libraries"]
        self._uuid = hello.get("uuid")

    def _exchange(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._channel is not None
        try:
            self._channel.send_bytes(json.dumps(request).encode())
            if not self._channel.poll(timeout_s):
                self._stop()
                raise InfrastructureError(
                    "oracle_timeout",
                    f"the oracle did not answer {request['op']!r} within {timeout_s:.0f} s; it was ended",
                )
            answer: dict[str, Any] = json.loads(self._channel.recv_bytes())
        except (EOFError, OSError) as error:
            self._stop()
            raise InfrastructureError(
                "oracle_died", f"the oracle process ended during {request['op']!r}; its message is on stderr"
            ) from error
        except BaseException:
            # Interrupted, say: what it still answers would be taken for the answer to the next request.
            self._stop()
            raise
        self._states = answer.get("states", {})
        if "fault" in answer:
            if answer["fault"]["kind"] == "oracle_died":
                # A device that was reset, say, leaves its process without a context: only a new one can go on.
                self._stop()
            raise InfrastructureError(answer["fault"]["kind"], answer["fault"]["message"])
        result: dict[str, Any] = answer["result"]
        return result

    def _request(self, operation: str, case: Case, built: Built, **fields: str) -> str:
        """The operation's record as JSON text, of whoever holds the device. Starts or restarts the oracle as needed."""
        assert built.so_path is not None
        digest = built.build.so_sha256
        assert digest is not None
        return self._asked(operation, case, so_path=str(built.so_path), so_sha256=digest, symbol=ENTRY_SYMBOL, **fields)

    def _asked(self, operation: str, case: Case, **fields: str) -> str:
        if self._process is None:
            self._start()
        return json.dumps(
            self._exchange({"op": operation, "case": case.model_dump_json(), **fields}, REQUEST_TIMEOUT_S)
        )

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """Trials, latency, baseline on this device."""
        with self._queue.beginning():
            run = RunEvidence.model_validate_json(self._request("evaluate", case, built))
        build = built.build
        assert self._device is not None
        assert build.so_sha256 is not None
        assert build.cubin_sha256 is not None
        return Evidence(
            definition=case.definition.name,
            workload_uuid=case.workload.uuid,
            arch=case.arch.name,
            candidate_sha256=build.candidate_sha256,
            so_sha256=build.so_sha256,
            cubin_sha256=build.cubin_sha256,
            harness=__version__,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            device=self._device,
            libraries=self._libraries,
            run=run,
            defences_off=self._without,
        )

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Nsight Compute over one call."""
        with self._queue.continuing():
            return InstructionEvidence.model_validate_json(self._request("instructions", case, built))

    def sanitize(self, case: Case, built: Built, tool: SafetyTool, *, limit_s: float | None = None) -> SafetyEvidence:
        """compute-sanitizer over one call. An earlier check of the same object answers without the device.

        ``limit_s`` is for the call, where it is not the tool's usual one.
        """
        checked = self._checked(case, built, tool)
        if checked is not None and self._safety_cache is not None:
            known = self._safety_cache.load(checked)
            if known is not None:
                return known
        with self._queue.continuing() if tool == "memcheck" else self._queue.yielding():
            limit = {} if limit_s is None else {"limit_s": str(limit_s)}
            found = SafetyEvidence.model_validate_json(self._request("sanitize", case, built, tool=tool, **limit))
        if checked is not None and self._safety_cache is not None:
            self._safety_cache.store(checked, found, at=datetime.now(UTC).isoformat(timespec="seconds"))
        return found

    def _checked(self, case: Case, built: Built, tool: SafetyTool) -> CheckedObject | None:
        """What a check now would answer for; None where nothing is kept or something of it is not known."""
        # What is measured with a defence switched off answers for nothing else.
        if self._safety_cache is None or self._without:
            return None
        path, device = find_tool("compute-sanitizer"), self.health().device
        version = tool_version(path) if path is not None else "unknown"
        if version == "unknown" or device is None:
            return None
        return checked_object(case, built, tool, tool_version=version, device=device)

    def qualify(self, case: Case) -> BaselineMeasurement:
        """The library of ``case`` compared with its reference and timed anew: whether this device can be trusted.

        Raises InfrastructureError, among others ("reference_failed") where they disagree.
        """
        with self._queue.continuing():
            return BaselineMeasurement.model_validate_json(self._asked("qualify", case))

    def start(self) -> DeviceIdentity:
        """Start the oracle unless it runs. Waits for whoever has the device. Raises InfrastructureError."""
        if self._process is None or self._process.poll() is not None:
            return self.restart()
        assert self._device is not None
        return self._device

    def restart(self) -> DeviceIdentity:
        """End the oracle, if there is one, and start another. Waits for whoever has the device."""
        with self._queue.continuing():
            self._stop()
            self._start()
        assert self._device is not None
        return self._device

    def interrupt(self) -> None:
        """Kill the oracle, whatever it does: whoever waits for it has InfrastructureError("oracle_died")."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    @property
    def states(self) -> dict[str, int]:
        """Bytes by ``state_key`` of what the oracle held when it last answered, least recently used first."""
        return self._states

    @property
    def uuid(self) -> str | None:
        """The device's UUID; None before the oracle told it."""
        return self._uuid

    @property
    def oracle_pid(self) -> int | None:
        """Process id of the oracle; None while there is none."""
        process = self._process
        return process.pid if process is not None else None

    def health(self) -> Health:
        """The device, starting the oracle if needed. Waits for nobody's measurement once the device is known."""
        if self._device is None:
            self.start()
        assert self._device is not None
        return Health(kind="local", device=self._device, message=f"{self._device.name}, driver {self._device.driver}")

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._states = {}
        if self._process is not None:
            # Closing the channel lets the oracle end its workers, in good order or soon after (``endings.end_with``).
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the oracle and all it started. Idempotent."""
        with self._queue.continuing():
            self._stop()
