"""A Ray cluster as a profiler: ``--profiler ray``."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ptxbench.cases.arch import available_archs, load_arch
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler.pool.slot import DEVICE_FAULTS
from ptxbench.profiler.protocol import CLOSED, Health, SafetyTool
from ptxbench.profiler.ray.actor import Compiled, Reply
from ptxbench.profiler.ray.address import Address
from ptxbench.profiler.ray.cluster import BUILD_RETRIES, Cluster, first_line
from ptxbench.profiler.ray.devices import Devices, Member, common_device, member_health
from ptxbench.profiler.ray.resources import resource_for, resource_of
from ptxbench.profiler.wire import Answer, Request, request_of, unwrap
from ptxbench.records import Evidence, InstructionEvidence, SafetyEvidence
from ptxbench.toolchain import Built

if TYPE_CHECKING:
    from ptxbench.cases.arch import Arch
    from ptxbench.cases.case import Case
    from ptxbench.records import Candidate

MOVES = 3
"""How often an operation is begun anew after its actor was lost. A kernel that takes nodes down must end somewhere."""
OPERATION_TIMEOUT_S = 5400.0
"""Longer than an actor's own limits, twice 39 minutes (docs/pool.md); past it the actor is taken for lost."""
BUILDS_KEPT = 1024
"""Objects that wait in Ray's store for further operations on them; a dropped one is built again."""
SIMULATED = 2
"""GPUs of each kind that a Ray started here has, to replay."""
DISTRUSTED = frozenset({"device_quarantined"})
"""Faults of an actor's device, and not of what was asked."""
FAILING = DEVICE_FAULTS - {"out_of_device_memory"}
"""The same where another actor has no such fault: one that fails at once would be the next to be asked. A workload may
be too large for one device and say nothing of it."""


class _LostError(Exception):
    """An actor, its node, or what it was sent is gone."""

    def __init__(self, reason: str, actor: bool) -> None:
        super().__init__(reason)
        self.actor = actor


class RayProfiler:
    """Implements ``Profiler`` over a cluster, and builds there too. Nothing is connected before it is needed."""

    def __init__(
        self,
        address: Address,
        *,
        root: Path,
        evidence_roots: tuple[Path, ...] = (),
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.origin: Literal["measured", "replayed"] = "replayed" if address.behind == "replay" else "measured"
        self._address = address
        self._root = root
        self._evidence_roots = [str(folder) for folder in evidence_roots]
        self._stopped = stopped
        self._devices: dict[str, Devices] = {}
        self._seen: set[str] = set()
        self._builds: OrderedDict[tuple[str, str], tuple[Compiled, Any]] = OrderedDict()
        self._notes: list[str] = []
        self._closed = False
        self._lock = threading.RLock()

    # What the protocol asks for.

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """Trials, latency and baseline on a GPU of the case's kind."""
        return self._perform(request_of("evaluate", case, built), case).evidence

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Nsight Compute over one call."""
        found = self._perform(request_of("instructions", case, built), case).instructions
        assert found is not None
        return found

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """compute-sanitizer over one call."""
        found = self._perform(request_of("sanitize", case, built, tool), case).safety
        assert found is not None
        return found

    def health(self) -> Health:
        """Every GPU of the cluster, by kind. Waits until one of each kind has started."""
        kinds = self._cluster.kinds()
        if not kinds:
            raise InfrastructureError("no_device", self._no_kind())
        found = [(kind, member) for kind in sorted(kinds) for member in self._of(kind).known(self._stopped)]
        devices = tuple(one for index, (kind, member) in enumerate(found) for one in member_health(member, kind, index))
        said = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        return Health(
            kind=f"ray ({self._address.behind})",
            device=common_device([member for _, member in found]),
            message=f"{self._cluster.nodes()} nodes: {said}",
            devices=devices,
        )

    def close(self) -> None:
        """End the actors and disconnect. Idempotent."""
        with self._lock:
            devices, self._devices = list(self._devices.values()), {}
            self._builds.clear()
            closed, self._closed = self._closed, True
        for each in devices:
            each.close()
        if not closed and "_connected" in self.__dict__:
            self._connected.close()

    # What it offers beside that.

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """As ``Toolchain.build``, on a node of the cluster; the object stays in Ray's store."""
        compiled, _ = self._compiled(candidate, arch)
        assert compiled.build is not None
        return Built(compiled.build, None, candidate)

    def refusal(self, case: Case) -> str | None:
        """Why no GPU of this cluster measures ``case``; None where one does, or did before it was lost."""
        kind = resource_for(case)
        self._seen |= self._cluster.kinds().keys()
        return None if kind in self._seen else f"wrong GPUs for {case.arch.name}: {self._no_kind(kind)}"

    def take_notes(self) -> list[str]:
        """What happened to actors and operations since the last time, for people."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    # How it is done.

    @cached_property
    def _connected(self) -> Cluster:
        return Cluster(self._address, self._simulated)

    @property
    def _cluster(self) -> Cluster:
        with self._lock:
            if self._closed:
                raise InfrastructureError("stopped", CLOSED)
            return self._connected

    def _simulated(self) -> dict[str, int]:
        archs = [load_arch(self._root, name) for name in available_archs(self._root)]
        return {resource_of(arch.compute_capability): SIMULATED for arch in archs}

    def _of(self, kind: str) -> Devices:
        cluster = self._cluster
        with self._lock:
            if kind not in self._devices:
                self._devices[kind] = Devices(
                    kind, cluster, lambda: cluster.open_device(kind, str(self._root), self._evidence_roots)
                )
            return self._devices[kind]

    def _perform(self, request: Request, case: Case) -> Answer:
        """One operation, begun anew elsewhere where its actor, node or device fails."""
        devices, text = self._of(resource_for(case)), request.model_dump_json()
        what = f"{request.operation} of {case.name}"
        failure = InfrastructureError("worker_died", what)
        for _ in range(MOVES + 1):
            member = devices.take(self._stopped)
            try:
                reply = self._asked(member, text, request.candidate, case)
            except _LostError as lost:
                self._lose(devices, member, lost, what)
                message = f"{what}: begun {MOVES + 1} times, each time its actor was lost, at last: {lost}"
                failure = InfrastructureError("worker_died", message)
                continue
            except BaseException:
                devices.give_back(member)
                raise
            self._tell(*(f"{member.node}: {note}" for note in reply.notes))
            fault = reply.answer.fault
            if fault is None or not (
                fault.kind in DISTRUSTED or (fault.kind in FAILING and devices.has_another(member))
            ):
                devices.give_back(member, reply.health)
                return _answer(reply)
            devices.distrust(member, fault)
            self._tell(f"{member.node}: {what} is done again elsewhere: {fault.message}")
            failure = InfrastructureError(fault.kind, fault.message)
        raise failure

    def _asked(self, member: Member, request: str, candidate: Candidate, case: Case) -> Reply:
        """What an actor answers. Raises _LostError; InfrastructureError for what went wrong in ours."""
        from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

        ray = self._cluster.ray
        try:
            compiled, content = self._compiled(candidate, case.arch)
            answer = member.actor.perform.remote(request, compiled.model_dump_json(), content)
            return Reply.model_validate_json(ray.get(answer, timeout=OPERATION_TIMEOUT_S))
        except RayTaskError as error:
            raise InfrastructureError("internal_error", f"on {member.node}: {first_line(error.cause)}") from error
        except GetTimeoutError as error:
            ray.kill(member.actor, no_restart=False)
            raise _LostError(f"no answer within {OPERATION_TIMEOUT_S:.0f} s", actor=True) from error
        except RayActorError as error:
            raise _LostError(first_line(error), actor=True) from error
        except RayError as error:
            raise _LostError(first_line(error), actor=False) from error

    def _lose(self, devices: Devices, member: Member, lost: _LostError, what: str) -> None:
        if lost.actor:
            devices.lost(member, str(lost))
        else:
            devices.give_back(member)
            with self._lock:
                self._builds.clear()
        self._tell(f"{member.node}: lost during {what}, which is done again: {lost}")

    def _compiled(self, candidate: Candidate, arch: Arch) -> tuple[Compiled, Any]:
        """A build's result, and a reference to its object. Raises InfrastructureError, also for a fault of the build;
        InputError for an entry that names no function."""
        from ray.exceptions import RayError

        key, cluster = (candidate.sha256, arch.name), self._cluster
        with self._lock:
            if key in self._builds:
                return self._builds[key]
        try:
            compiled, content = cluster.compile(candidate.model_dump_json(), arch.model_dump_json())
        except RayError as error:
            message = f"a build was begun {BUILD_RETRIES + 1} times without an answer, at last: {first_line(error)}"
            raise InfrastructureError("worker_died", message) from error
        if compiled.input_error:
            raise InputError(compiled.input_error)
        if compiled.fault is not None:
            raise InfrastructureError(compiled.fault.kind, f"on a node: {compiled.fault.message}")
        with self._lock:
            self._builds[key] = compiled, content
            if len(self._builds) > BUILDS_KEPT:
                self._builds.popitem(last=False)
        return compiled, content

    def _tell(self, *notes: str) -> None:
        when = datetime.now(UTC).strftime("%H:%M:%S UTC")
        with self._lock:
            self._notes += [f"ray, {when}: {note}" for note in notes]

    def _no_kind(self, kind: str | None = None) -> str:
        found = ", ".join(f"{number} {name}" for name, number in sorted(self._cluster.kinds().items())) or "none"
        wanted = f"the resource {kind}" if kind is not None else "resources that name GPUs"
        return (
            f"expected a node with {wanted}, found {found}; nodes tell theirs with `ray start --resources=...` "
            "(docs/scale.md)"
        )


def _answer(reply: Reply) -> Answer:
    if reply.input_error:
        raise InputError(reply.input_error)
    return unwrap(reply.answer)
