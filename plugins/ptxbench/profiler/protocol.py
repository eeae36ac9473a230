"""The seam between the agent loop and whatever measures: a local GPU, stored evidence, later a service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from ptxbench.errors import InputError
from ptxbench.records import DeviceIdentity, Evidence, InstructionEvidence, Record, SafetyEvidence
from ptxbench.records import SafetyTool as SafetyTool

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

CLUSTER = "ray"
"""How ``--profiler`` begins where it names a Ray cluster (``profiler.ray.address``)."""
CLOSED = "the profiler was closed: this was not measured"
"""What an operation is told that waits when its profiler is closed, or comes later; its kind is ``stopped``."""


DeviceState = Literal["ready", "busy", "paused", "quarantined", "restarting", "qualifying"]


class DeviceHealth(Record):
    """One GPU behind a profiler."""

    name: str
    """As CUDA_VISIBLE_DEVICES names it for the processes that use it."""
    index: int
    """Position among the profiler's devices."""
    state: DeviceState
    reason: str = ""
    """Why it is not ready, in words; empty otherwise."""
    temperature_c: int | None = None
    """Last reading; None where nothing was read."""
    running: int = 0
    """Operations on the device."""
    queued: int = 0
    """Operations that wait and would go to this device, as things stand."""
    resident: tuple[str, ...] = ()
    """Names of the cases whose state is in its memory."""
    since: str = ""
    """When it came to be in this state, UTC, ISO 8601."""


EVIDENCE_FOLDERS = (Path("generated", "reference"), Path("tests", "evidence"))
"""Where committed evidence lies in a checkout. It answers by content hash alone, so all of it can be searched."""

SERVICE_SCHEMES = ("http://", "https://")
"""How ``--profiler`` begins where it names a service (``ptxbench serve``)."""


class Health(Record):
    """What stands behind a profiler now."""

    kind: str
    device: DeviceIdentity | None
    message: str
    devices: tuple[DeviceHealth, ...] = ()
    """The devices one by one, where the profiler watches them."""


class Profiler(Protocol):
    """Measures built candidates. Implementations are safe to call from several threads.

    Every operation raises ``InfrastructureError`` for faults that are not the candidate's, ``InputError`` where stored
    evidence is broken, and nothing else.
    """

    @property
    def origin(self) -> Literal["measured", "replayed"]:
        """Whether evidence is taken now or read back; replayed evidence is complete as it comes."""

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """Trials, latency and baseline. ``None``: this profiler cannot know (no stored evidence of this hash)."""

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Executed counts per SASS opcode over one call on the evaluated workload."""

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """One sanitizer tool over one call: memcheck on the full workload, the others on shrunk axes.

        memcheck is needed before numbers count, so it goes before what begins; the others give way to all else. May
        answer from an earlier check of the same object.
        """

    def health(self) -> Health:
        """Device and state, without measuring anything."""

    def close(self) -> None:
        """End every process that the profiler started. Idempotent."""


def open_profiler(
    name: str, *, root: Path, evidence_roots: tuple[Path, ...], stopped: Callable[[], bool] = lambda: False
) -> Profiler:
    """Open ``local`` (all GPUs that this process may use), ``replay``, a service by its URL, a Ray cluster (``ray``,
    ``ray://HOST:PORT``) or, with ``auto``, ``local`` where a CUDA device is present and else ``replay``.

    ``evidence_roots`` are the folders that ``replay`` searches. Once ``stopped`` says so, what waits to be measured is
    given up with InfrastructureError("stopped"). Raises InputError for another name and
    InfrastructureError("no_device") for ``local`` without a device.
    """
    # Imported late: the GPU side must cost nothing on a machine that only replays.
    if name.startswith(SERVICE_SCHEMES):
        from ptxbench.profiler.http import HttpProfiler

        return HttpProfiler(name, stopped=stopped)
    if name.startswith(CLUSTER) and name[len(CLUSTER) :][:1] in ("", ":", "?"):
        from ptxbench.profiler.ray.address import parse
        from ptxbench.profiler.ray.profiler import RayProfiler

        return RayProfiler(parse(name), root=root, evidence_roots=evidence_roots, stopped=stopped)
    from ptxbench.profiler.device import device_present
    from ptxbench.profiler.replay import ReplayProfiler

    if name not in ("auto", "local", "replay"):
        raise InputError(f"--profiler: expected auto, local, replay, ray or the URL of a service, found {name!r}")
    if name == "replay" or (name == "auto" and not device_present()):
        return ReplayProfiler(evidence_roots)
    from ptxbench.profiler.pool.host import open_pool

    return open_pool(root=root, stopped=stopped)
