"""The pool of this host over stand-in oracles: real processes, each with its device, that are really killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import local
from ptxbench.profiler.pool.host import open_pool
from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.pool.readings import Reader, Readings
from ptxbench.profiler.ray import actor
from ptxbench.profiler.state_key import state_key
from tests.conftest import compute_capability
from tests.unit.factories import DEVICE, make_baseline, make_run, suite_case
from tests.unit.profiler.pool.parts import CASES, QUICK, evaluate, states, together, wait_until
from tests.unit.profiler.stand_in import is_alive

ORACLE = """\
import json, os, sys, time
from multiprocessing.connection import Connection
channel = Connection(int(sys.argv[sys.argv.index("--fd") + 1]))
libraries = {{"pid": str(os.getpid()), "visible": os.environ["CUDA_VISIBLE_DEVICES"]}}
answers = {{"hello": {{"device": {device!r}, "libraries": libraries}}, "evaluate": {run!r}, "qualify": {baseline!r}}}
while True:
    try:
        operation = json.loads(channel.recv_bytes())["op"]
    except EOFError:
        sys.exit()
    time.sleep(0.05)
    states = {{"qualified": 1}} if operation == "qualify" else {{{key!r}: 1 << 30}}
    if operation == "evaluate" and os.path.exists({crash!r}):
        os.remove({crash!r})
        os.kill(os.getpid(), 9)
    channel.send_bytes(json.dumps({{"result": answers[operation], "states": states}}).encode())
"""


class Warm:
    """A reader that always says the same."""

    def read(self) -> Readings:
        return Readings(temperature_c=40)


@pytest.fixture
def oracles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "oracles" / "ptxbench" / "profiler"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    program = ORACLE.format(
        device=DEVICE.model_dump(mode="json"),
        run=make_run().model_dump(mode="json"),
        baseline=make_baseline().model_dump(mode="json"),
        key=state_key(suite_case()),
        crash=str(tmp_path / "crash"),
    )
    (package / "oracle.py").write_text(program)
    monkeypatch.setattr(local, "import_path", lambda: str(tmp_path / "oracles"))
    monkeypatch.setattr(local, "device_present", lambda: True)
    return tmp_path


@pytest.fixture
def pool(oracles: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DevicePool]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    named: dict[str, Reader] = {}

    def wrap(name: str, reader: Reader) -> Reader:
        named[name] = reader
        return Warm()

    opened = open_pool(root=oracles, limits=QUICK, wrap=wrap)
    yield opened
    opened.close()
    assert set(named) <= {"GPU-b", "GPU-a"}


def test_each_oracle_has_its_device_and_goes_with_the_pool(pool: DevicePool) -> None:
    # None has the second state, so a second device is as good as the first.
    together(pool, [CASES[0]] * 2)
    wait_until(lambda: states(pool) == ["ready", "ready"])
    found = together(pool, list(CASES[:2]) * 3)
    by_device = {evidence.libraries["visible"]: int(evidence.libraries["pid"]) for evidence in found}
    assert set(by_device) == {"GPU-b", "GPU-a"}
    devices = pool.health().devices
    assert [(device.name, device.temperature_c) for device in devices] == [("GPU-b", 40), ("GPU-a", 40)]
    assert all(suite_case().name in device.resident for device in devices)
    pool.close()
    assert not any(map(is_alive, by_device.values()))


def test_the_only_device_is_left_as_the_caller_has_it(oracles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " GPU-a ")
    pool = open_pool(root=oracles, limits=QUICK)
    try:
        assert evaluate(pool).libraries["visible"] == " GPU-a "
        assert pool.health().devices[0].name == "GPU-a"
    finally:
        pool.close()


def test_a_device_of_a_ray_cluster_is_watched_like_one_of_several(
    oracles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray gives an actor one GPU, for which ``--profiler local`` has no pool; docs/scale.md promises its watch."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("PTXBENCH_CACHE", str(oracles / "cache"))
    monkeypatch.setattr(actor, "node_name", lambda: "host/1")
    device = actor.Device("local", str(oracles), [], 0.0)
    try:
        health = actor.Hello.model_validate_json(device.hello()).health
        assert health is not None
        assert [(each.name, each.state) for each in health.devices] == [("3", "ready")]
    finally:
        device.close()


def test_an_oracle_that_is_killed_is_replaced_and_its_work_is_done(pool: DevicePool, oracles: Path) -> None:
    first = evaluate(pool)
    (oracles / "crash").touch()
    second = evaluate(pool)
    assert second.libraries["pid"] != first.libraries["pid"]
    assert second.run == first.run
    # And one that is killed while nobody asks it for anything.
    os.kill(int(second.libraries["pid"]), signal.SIGKILL)
    assert evaluate(pool).run == first.run
    notes = pool.take_notes()
    assert sum("restarting" in note for note in notes) >= 1
    assert any("is done again" in note for note in notes)


@pytest.mark.skipif(compute_capability() is not None, reason="there is a CUDA device")
def test_without_a_device_nothing_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="expected a CUDA device and driver, found none"):
        open_pool(root=tmp_path)
