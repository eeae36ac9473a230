"""The actors of one kind of GPU: who has which, and what becomes of those that were lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ptxbench import __version__
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.protocol import CLOSED, DeviceHealth, DeviceState, Health
from ptxbench.profiler.ray.actor import Hello
from ptxbench.profiler.ray.cluster import Cluster, first_line
from ptxbench.records import DeviceIdentity, InfrastructureFault

POLL_S = 0.2
"""How soon a returned actor, a new node or a stop is noticed."""
LOOK_S = 1.0
"""How often the cluster is asked for its GPUs while somebody waits."""
PATIENCE_S = 300.0
"""How long no actor at all may be ready: a node that joins, an oracle that starts, another session that ends."""
CLOSE_S = 10.0
"""For an actor to end its oracle; then it is killed, and its oracle ends by itself."""
REST_S = 60.0
"""How long a quarantined device is left alone."""


@dataclass
class Member:
    """One actor. Ray may restart it, also on another node; it stays this one."""

    number: int
    actor: Any
    hello: Any = None
    """Reference to the ``Hello`` that is awaited; None once it is here."""
    node: str = ""
    health: Health | None = None
    fault: InfrastructureFault | None = None
    state: DeviceState = "restarting"
    reason: str = "its actor starts"
    since: float = field(default_factory=time.time)

    def becomes(self, state: DeviceState, reason: str = "") -> None:
        """Change state."""
        self.state, self.reason, self.since = state, reason, time.time()


class Devices:
    """Actors of one kind, one for each such GPU of the cluster, also of nodes that join later.

    ``open_device`` asks Ray for another actor. Safe for several threads.
    """

    def __init__(self, kind: str, cluster: Cluster, open_device: Callable[[], Any]) -> None:
        from ray.util import ActorPool

        self.kind = kind
        self._cluster = cluster
        self._open_device = open_device
        self._idle = ActorPool([])
        self._members: list[Member] = []
        self._looked = 0.0
        self._last_ready = time.monotonic()
        self._closed = False
        self._changed = threading.Condition()

    def take(self, stopped: Callable[[], bool]) -> Member:
        """Wait for an actor, and have it alone until it is given back or reported as lost.

        Raises InfrastructureError: ``stopped``, ``no_device``, or what every actor failed with.
        """
        with self._changed:
            while True:
                if stopped():
                    raise InfrastructureError("stopped", "the run ends: this was not measured")
                self._look()
                actor = self._idle.pop_idle()
                if actor is not None:
                    member = next(member for member in self._members if member.actor == actor)
                    member.becomes("busy")
                    return member
                self._expect_some()
                self._changed.wait(POLL_S)

    def give_back(self, member: Member, health: Health | None = None) -> None:
        """It did what it was taken for."""
        with self._changed:
            member.health = health or member.health
            self._free(member)

    def lost(self, member: Member, reason: str) -> None:
        """Its process or its node ended. Ray starts it again where it can."""
        with self._changed:
            member.becomes("restarting", reason)
            member.hello = member.actor.hello.remote()

    def distrust(self, member: Member, fault: InfrastructureFault) -> None:
        """Leave it alone for a while, after which it says how it is."""
        with self._changed:
            member.fault = fault
            member.becomes("quarantined", fault.message)
            member.hello = member.actor.rest.remote(REST_S)

    def has_another(self, member: Member) -> bool:
        """Whether another actor measures, or would."""
        with self._changed:
            return any(other is not member and other.state in ("ready", "busy") for other in self._members)

    def known(self, stopped: Callable[[], bool]) -> list[Member]:
        """All members, once at least one has started. Raises as ``take``."""
        with self._changed:
            while True:
                self._look()
                if any(member.health is not None for member in self._members):
                    return list(self._members)
                if stopped():
                    raise InfrastructureError("stopped", "the run ends: its devices were not waited for")
                self._expect_some()
                self._changed.wait(POLL_S)

    def close(self) -> None:
        """End the actors, and what they started."""
        from ray.exceptions import RayError

        ray = self._cluster.ray
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            members, self._members = self._members, []
        with suppress(RayError):  # a cluster that is gone has ended them
            closing = [member.actor.close.remote() for member in members if member.state in ("ready", "busy")]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
            for member in members:
                ray.kill(member.actor, no_restart=True)

    def _look(self) -> None:
        """Notice actors that have started, and GPUs that have joined. Raises InfrastructureError("stopped")."""
        if self._closed:
            raise InfrastructureError("stopped", CLOSED)
        now = time.monotonic()
        if now - self._looked >= LOOK_S or not self._members:
            self._looked = now
            for number in range(len(self._members), self._cluster.kinds().get(self.kind, 0)):
                self._members.append(Member(number, self._open_device()))
        for member in self._members:
            if member.hello is None and member.state in ("restarting", "quarantined") and member.fault is None:
                member.hello = member.actor.hello.remote()
            elif member.hello is not None and self._cluster.ray.wait([member.hello], timeout=0)[0]:
                self._greeted(member)
        if any(member.state in ("ready", "busy") for member in self._members):
            self._last_ready = now

    def _greeted(self, member: Member) -> None:
        from ray.exceptions import ActorDiedError, RayError

        reference, member.hello = member.hello, None
        try:
            hello = Hello.model_validate_json(self._cluster.ray.get(reference))
        except ActorDiedError as error:
            # Not one that Ray restarts: it could not be made, or somebody killed it.
            member.fault = InfrastructureFault(kind="worker_died", message=f"{self.kind}: {first_line(error)}")
            member.becomes("quarantined", member.fault.message)
            return
        except RayError as error:
            member.becomes("restarting", first_line(error))
            return
        member.node, member.health = hello.node, hello.health
        fault = _fault(hello)
        if fault is not None:
            self.distrust(member, fault)
        else:
            member.fault = None
            self._free(member)

    def _free(self, member: Member) -> None:
        member.becomes("ready")
        self._idle.push(member.actor)
        self._changed.notify_all()

    def _expect_some(self) -> None:
        """Raises InfrastructureError where no actor is ready, and none can be waited for any longer."""
        faults = [member.fault for member in self._members]
        first = next(iter(faults), None)
        if first is not None and all(fault is not None for fault in faults):
            raise InfrastructureError(first.kind, first.message)
        if time.monotonic() - self._last_ready < PATIENCE_S:
            return
        reasons = "; ".join(f"{member.state}: {member.reason}" for member in self._members) or "no such node"
        raise InfrastructureError(
            "no_device",
            f"expected a free GPU of kind {self.kind} within {PATIENCE_S:.0f} s, found {reasons}; nodes join with "
            "`ray start --resources=...` (docs/scale.md), and a session keeps the GPUs that it has",
        )


def _fault(hello: Hello) -> InfrastructureFault | None:
    """Why an actor that has started cannot be used; None where it can."""
    if hello.version != __version__:
        message = f"expected PTXBench {__version__} on {hello.node}, found {hello.version}; install the same"
        return InfrastructureFault(kind="service_refused", message=message)
    devices = hello.health.devices if hello.health is not None else ()
    if devices and all(device.state == "quarantined" for device in devices):
        return InfrastructureFault(kind="device_quarantined", message=f"on {hello.node}: {devices[0].reason}")
    return hello.fault


def member_health(member: Member, kind: str, index: int) -> list[DeviceHealth]:
    """A member as ``Health.devices`` lists it: what its own watch says, unless it is not there to say anything."""
    told = member.health.devices if member.health is not None else ()
    name = f"{kind} of {member.node or 'no node yet'}"
    since = datetime.fromtimestamp(member.since, UTC).isoformat(timespec="seconds")
    if not told or member.state in ("restarting", "quarantined"):
        running = int(member.state == "busy")
        return [
            DeviceHealth(name=name, index=index, state=member.state, reason=member.reason, running=running, since=since)
        ]
    return [one.model_copy(update={"name": f"{name}: {one.name}", "index": index}) for one in told]


def common_device(members: list[Member]) -> DeviceIdentity | None:
    """The device that all of them have; None where they differ, or none has one."""
    found = [member.health.device for member in members if member.health is not None and member.health.device]
    kinds = {(device.name, device.compute_capability) for device in found}
    return found[0] if len(kinds) == 1 else None
