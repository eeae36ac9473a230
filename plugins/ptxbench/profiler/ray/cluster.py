"""The connection to a cluster, and what of it our actors and tasks need."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.ray.actor import Compiled, Device, compile_candidate
from ptxbench.profiler.ray.address import Address, is_place
from ptxbench.profiler.ray.resources import capabilities_here, counted, kinds

NAMESPACE = "ptxbench"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a benchmark tells nobody that it runs
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's next default, and without the warning about it
}
ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Ray's own: the cluster of a plain ``ray``. ``local`` is one that is started here and ends with the session; without
the variable it is the one that runs here, or else a new one."""
LOCAL = "local"
CALLS_AT_ONCE = 3
"""Of an actor: an operation, and beside it a question how it is, of which one may rest. Ray's client server knows no
groups of calls."""
CONNECT_TIMEOUT_S = 10.0
CLIENT_ATTEMPTS = 3
"""Of a connection from outside. The head forks a process for each client, which now and then crashes in gRPC's fork
handlers (docs/scale.md); 1 of 10 did with Ray 2.60 and grpcio 1.85."""
BUILD_RETRIES = 3
"""Of a build whose node was lost; Ray's own default, written down since turns depend on it."""
_LOCK = threading.Lock()
"""Ray is one connection per process."""


class Cluster:
    """A connected cluster. The connection ends with ``close``, unless it was there before."""

    def __init__(self, address: Address, simulated: Callable[[], dict[str, int]]) -> None:
        """``simulated``: the GPUs, by kind, of a Ray that is started here to replay.

        Raises InfrastructureError("service_unavailable") where Ray is not installed or no cluster answers.
        """
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ModuleNotFoundError as error:
            message = "--profiler ray: expected Ray, found none; pip install 'ptxbench[ray]'"
            raise InfrastructureError("service_unavailable", message) from error
        self.ray: Any = ray
        self.address = address
        with _LOCK:
            self._ours = not ray.is_initialized()
            if self._ours:
                self._connect(simulated)
        self._compile = ray.remote(num_cpus=1, max_retries=BUILD_RETRIES)(compile_candidate)
        measuring = address.behind == "local"
        # Restarted wherever there is room, as often as needed. A call on an actor that was lost is not repeated there
        # (max_task_retries): another actor may be idle, while this one waits for a node.
        self._device = ray.remote(
            num_cpus=0,
            num_gpus=1 if measuring else 0,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=CALLS_AT_ONCE,
        )(Device)

    def _connect(self, simulated: Callable[[], dict[str, int]]) -> None:
        quiet: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
        said = self.address.url or os.environ.get(ADDRESS_VARIABLE, "")
        try:
            if said not in ("", "auto", LOCAL):
                _expect_somebody(said)
            if said != LOCAL:
                try:
                    self._join(said or "auto", quiet)
                    return
                except ConnectionError:
                    if said:
                        raise
            here = counted(capabilities_here()) if self.address.behind == "local" else simulated()
            self.ray.init(address=LOCAL, resources=here, include_dashboard=False, **quiet)
        except Exception as error:  # it reaches many libraries, each with errors of its own
            raise self._unreachable(said, error) from error

    def _join(self, address: str, options: dict[str, Any]) -> None:
        """Become a driver or a client of a cluster. Raises what Ray raises, ConnectionError among it."""
        for attempt in range(1, CLIENT_ATTEMPTS + 1):
            try:
                self.ray.init(address=address, **options)
                return
            except Exception as error:
                # What a client has begun takes every later call of this process to the server that failed.
                self.ray.shutdown()
                if not isinstance(error, ConnectionAbortedError) or attempt == CLIENT_ATTEMPTS:
                    raise

    def _unreachable(self, said: str, error: Exception) -> InfrastructureError:
        place = said or "this machine"
        hint = (
            "start one with `ray start --head` (docs/scale.md); from outside a cluster, `ray[client]` is needed too; a "
            "cluster with a token wants RAY_AUTH_MODE=token here"
        )
        return InfrastructureError(
            "service_unavailable",
            f"--profiler ray: expected a Ray cluster at {place}, found: {first_line(error)}; {hint}",
        )

    def kinds(self) -> dict[str, int]:
        """GPUs by kind, of the nodes that are alive."""
        return kinds(self.ray.cluster_resources())

    def nodes(self) -> int:
        """How many nodes are alive."""
        return sum(bool(node["Alive"]) for node in self.ray.nodes())

    def open_device(self, kind: str, root: str, evidence_roots: list[str]) -> Any:  # noqa: ANN401 - Ray's handle
        """Ask for an actor with one GPU of a kind. Ray places it when there is one that is free."""
        placed = self._device.options(resources={kind: 1})
        return placed.remote(self.address.behind, root, evidence_roots, self.address.pace_s)

    def compile(self, candidate: str, arch: str) -> tuple[Compiled, Any]:
        """Build on any node with a free processor. Returns what was found, and a reference to the object.

        The object is kept where this process is: a node that is lost with it would cost the time until Ray is sure of
        that, and another build. Raises Ray's errors.
        """
        found, content = self.ray.get(self._compile.remote(candidate, arch))
        return Compiled.model_validate_json(found), self.ray.put(content)

    def close(self) -> None:
        """Disconnect. Idempotent."""
        with _LOCK:
            if self._ours and self.ray.is_initialized():
                self.ray.shutdown()
            self._ours = False


def _expect_somebody(address: str) -> None:
    """Ray itself tries for two minutes to reach what is not there. Raises OSError, ValueError."""
    place = address.removeprefix("ray://")
    if not is_place(place):
        raise ValueError(f"expected HOST:PORT, found {place[:80]!r}")
    host, _, port = place.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
        pass


def first_line(error: BaseException) -> str:
    """An error of Ray's without the log that it often holds; with what a server said last, where it says only that."""
    lines = str(error).strip().splitlines() or [""]
    said = f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") else lines[0]
    return f"{type(error).__name__}: {said}"[:300]
