"""Who has which actor, over futures of this process. What Ray does with real ones: tests/acceptance/test_ray.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench import __version__
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.protocol import DeviceHealth, Health
from ptxbench.profiler.ray import devices as module
from ptxbench.profiler.ray.actor import Hello
from ptxbench.profiler.ray.devices import Devices, common_device, member_health
from ptxbench.records import InfrastructureFault
from tests.unit.factories import DEVICE

exceptions = pytest.importorskip("ray.exceptions", reason="needs Ray: pip install 'ptxbench[ray]'")

QUARANTINED = InfrastructureFault(kind="device_quarantined", message="too hot")


def hello(**changes: Any) -> Hello:
    told = {"version": __version__, "node": "host/1", "health": Health(kind="local", device=DEVICE, message="")}
    return Hello(**{**told, **changes})


class Future:
    """What ``remote`` returns; ``value`` is None until it is known."""

    def __init__(self, value: object) -> None:
        self.value = value


class Actor:
    """Answers ``hello`` at once, and ``rest`` when it is told to."""

    def __init__(self, greeting: object) -> None:
        self.greeting = greeting
        self.resting: list[Future] = []
        self.hello = SimpleNamespace(remote=lambda: Future(self.greeting))
        self.rest = SimpleNamespace(remote=self._rest)
        self.close = SimpleNamespace(remote=lambda: Future(self))

    def _rest(self, seconds: float) -> Future:
        assert seconds == module.REST_S
        self.resting.append(Future(None))
        return self.resting[-1]


class FakeCluster:
    """``ray.wait`` and ``ray.get`` over such futures, and a number of GPUs."""

    def __init__(self, *greetings: object) -> None:
        self.actors = [Actor(greeting) for greeting in greetings]
        self.total = len(greetings)
        self.killed: list[Actor] = []
        self.ray = SimpleNamespace(wait=self._wait, get=self._get, kill=self._kill)

    def kinds(self) -> dict[str, int]:
        return {"gpu_sm90": self.total}

    def devices(self) -> Devices:
        opened = iter(self.actors)
        return Devices("gpu_sm90", self, lambda: next(opened))  # type: ignore[arg-type]

    def _kill(self, actor: Actor, no_restart: bool) -> None:
        assert no_restart
        self.killed.append(actor)

    def _wait(self, futures: list[Future], timeout: float, num_returns: int = 1) -> tuple[list[Future], list[Future]]:
        assert timeout in (0, module.CLOSE_S)
        return [one for one in futures if one.value is not None], []

    def _get(self, future: Future) -> str:
        if isinstance(future.value, Exception):
            raise future.value
        assert isinstance(future.value, Hello)
        return future.value.model_dump_json()


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)


def go_on() -> bool:
    return False


def test_each_actor_is_had_by_one_and_the_last_one_back_is_the_next():
    devices = FakeCluster(hello(), hello()).devices()
    first, second = devices.take(go_on), devices.take(go_on)
    assert {first.number, second.number} == {0, 1}
    devices.give_back(second)
    devices.give_back(first)
    assert devices.take(go_on) is first


def test_another_is_one_that_measures():
    devices = FakeCluster(hello(), hello()).devices()
    first, second = devices.take(go_on), devices.take(go_on)
    assert devices.has_another(first)
    devices.distrust(second, QUARANTINED)
    assert not devices.has_another(first)
    assert devices.has_another(second)


def test_a_node_that_joins_brings_an_actor():
    cluster = FakeCluster(hello(), hello())
    cluster.total = 1
    devices = cluster.devices()
    first = devices.take(go_on)
    cluster.total = 2
    assert devices.take(go_on) is not first


def test_a_quarantined_device_is_left_alone_until_it_is_well_again():
    cluster = FakeCluster(hello(), hello())
    devices = cluster.devices()
    bad = devices.take(go_on)
    devices.distrust(bad, QUARANTINED)
    good = devices.take(go_on)
    devices.distrust(good, QUARANTINED)
    with pytest.raises(InfrastructureError, match="too hot") as caught:
        devices.take(go_on)
    assert caught.value.kind == "device_quarantined"
    shown = DeviceHealth(name="0", index=0, state="quarantined", reason="still hot")
    (rest,) = bad.actor.resting
    rest.value = hello(health=Health(kind="local", device=DEVICE, message="", devices=(shown,)))
    with pytest.raises(InfrastructureError, match="too hot"):
        devices.take(go_on)
    bad.actor.resting[-1].value = hello()
    assert devices.take(go_on) is bad


@pytest.mark.parametrize(
    ("greeting", "kind"),
    [
        (hello(version="0.0.0"), "service_refused"),
        (hello(health=None, fault=InfrastructureFault(kind="no_device", message="no driver")), "no_device"),
        (exceptions.ActorDiedError(), "worker_died"),
    ],
)
def test_actors_that_can_not_measure_are_the_fault_unless_another_can(greeting, kind):
    with pytest.raises(InfrastructureError) as caught:
        FakeCluster(greeting, greeting).devices().take(go_on)
    assert caught.value.kind == kind
    devices = FakeCluster(greeting, hello()).devices()
    assert devices.take(go_on).number == 1


def test_nobody_waits_for_ever_or_after_a_stop():
    cluster = FakeCluster(None)
    with pytest.raises(InfrastructureError, match="found restarting: its actor starts") as caught:
        cluster.devices().take(go_on)
    assert caught.value.kind == "no_device"
    with pytest.raises(InfrastructureError) as caught:
        cluster.devices().take(lambda: True)
    assert caught.value.kind == "stopped"


def after(looks: int, act: Callable[[], object]) -> Callable[[], bool]:
    """A ``stopped`` that acts when somebody has waited for so many looks, and never stops."""
    left = [looks]

    def look() -> bool:
        left[0] -= 1
        if left[0] == 0:
            act()
        return False

    return look


def test_an_actor_that_is_busy_is_waited_for_beyond_all_patience():
    devices = FakeCluster(hello()).devices()
    member = devices.take(go_on)
    give_back = after(3, lambda: devices.give_back(member))

    def slow_look() -> bool:
        time.sleep(module.PATIENCE_S)
        return give_back()

    assert devices.take(slow_look) is member


def test_one_that_is_well_again_has_no_fault_any_more():
    cluster = FakeCluster(hello())
    devices = cluster.devices()
    member = devices.take(go_on)
    devices.distrust(member, QUARANTINED)
    member.actor.resting[-1].value = hello()
    assert devices.take(go_on) is member
    assert devices.take(after(3, lambda: devices.give_back(member))) is member, "busy, and no longer quarantined"


def test_where_one_cannot_measure_another_that_still_starts_is_waited_for():
    cluster = FakeCluster(hello(health=None, fault=InfrastructureFault(kind="no_device", message="no driver")), None)
    devices = cluster.devices()

    def come_up() -> None:
        devices._members[1].hello.value = hello()

    assert devices.take(after(3, come_up)).number == 1


def test_who_waits_when_the_profiler_is_closed_opens_no_further_actor(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 30.0)
    cluster = FakeCluster(hello())
    devices = cluster.devices()
    devices.take(go_on)
    looks: list[None] = []

    def closing() -> bool:
        looks.append(None)
        if len(looks) == 2:
            devices.close()
        return False

    with pytest.raises(InfrastructureError, match="the profiler was closed") as caught:
        devices.take(closing)
    assert caught.value.kind == "stopped"
    assert cluster.killed == cluster.actors
    with pytest.raises(InfrastructureError, match="the profiler was closed"):
        devices.known(go_on)


def test_a_lost_actor_that_is_unavailable_is_asked_until_it_answers(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 30.0)
    devices = FakeCluster(hello()).devices()
    member = devices.take(go_on)
    member.actor.greeting = exceptions.ActorUnavailableError("it restarts", b"0" * 16)
    devices.lost(member, "its node ended")
    looks: list[str] = []

    def watching() -> bool:
        looks.append(member.reason)
        if len(looks) == 5:
            member.actor.greeting = hello(node="host/2")
        return False

    assert devices.take(watching).node == "host/2"
    assert looks[0] == "its node ended"
    assert looks[-1].startswith("ActorUnavailableError: The actor")


def test_health_tells_devices_by_kind_and_node():
    devices = FakeCluster(hello(), hello(health=Health(kind="local", device=DEVICE, message=""))).devices()
    taken = devices.take(go_on)
    members = devices.known(go_on)
    assert common_device(members) == DEVICE
    (busy,) = member_health(taken, "gpu_sm90", 3)
    assert (busy.name, busy.index, busy.state, busy.running) == ("gpu_sm90 of host/1", 3, "busy", 1)
    devices.lost(taken, "its node ended")
    (lost,) = member_health(taken, "gpu_sm90", 3)
    assert (lost.state, lost.reason) == ("restarting", "its node ended")
    other = DEVICE.model_copy(update={"name": "NVIDIA H100"})
    members[1].health = Health(kind="local", device=other, message="")
    assert common_device(members) is None
