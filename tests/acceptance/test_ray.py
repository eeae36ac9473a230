"""A Ray cluster of several nodes, simulated on this machine with Ray's own means: placement, and what is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ptxbench.profiler.ray.address import Address
from ptxbench.profiler.ray.profiler import RayProfiler
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Candidate
from tests.acceptance.test_serve_pytest import comparable
from tests.conformance.transports import EVIDENCE
from tests.conftest import ROOT
from tests.unit.factories import GEMM, suite_case

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'ptxbench[ray]'")

PACE_S = 1.0
"""An answer takes this long, so that a node can be lost within one."""
SOURCE = (ROOT / "generated" / "reference" / "h100" / GEMM / "kernel.cu").read_text()
MODEST = {"include_dashboard": False, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def client_port() -> int | None:
    """A port that nobody had a moment ago; None without what Ray's client server needs."""
    if find_spec("grpc") is None:
        return None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(build_cache: Path, client_port: int | None) -> Iterator[Any]:
    """A head with a Blackwell GPU, as its resources claim; nodes with Hopper GPUs join in the tests."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "plugins"), str(ROOT), *sys.path[1:]]))
        patch.setenv("PTXBENCH_CACHE", str(build_cache))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # as docs/scale.md says, for the client server
        head = {"num_cpus": 1, "resources": {"gpu_sm100": 1}, "ray_client_server_port": client_port, **MODEST}
        with warnings.catch_warnings():
            # Ray leaves two files of its client server's to the collector.
            warnings.simplefilter("ignore", ResourceWarning)
            cluster = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def hoppers(cluster) -> list[Any]:
    """Two nodes with one GPU each."""
    return [join(cluster) for _ in range(2)]


def join(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, resources={"gpu_sm90": 1}, object_store_memory=MODEST["object_store_memory"])


@pytest.fixture
def profiler(hoppers) -> Iterator[RayProfiler]:
    opened = RayProfiler(Address(None, "replay", PACE_S), root=ROOT, evidence_roots=EVIDENCE)
    yield opened
    opened.close()
    assert not ray.is_initialized()


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def nodes(profiler: RayProfiler, kind: str) -> list[str]:
    """Beginnings of the ids of the nodes where actors of a kind are, by what ``health`` says."""
    names = [device.name for device in profiler.health().devices if device.name.startswith(f"{kind} of ")]
    return [name.rpartition("/")[2] for name in names]


def test_a_case_is_measured_on_a_node_with_its_kind_of_gpu_or_not_at_all(profiler, cluster, hoppers) -> None:
    hopper, blackwell = suite_case(GEMM), suite_case(GEMM, "b200")
    built = profiler.build(Candidate(source=SOURCE), hopper.arch)
    assert profiler.evaluate(hopper, built) is not None
    assert profiler.refusal(hopper) is profiler.refusal(blackwell) is None
    assert set(nodes(profiler, "gpu_sm90")) <= {node.node_id[:8] for node in hoppers}
    assert nodes(profiler, "gpu_sm100") == [cluster.head_node.node_id[:8]]
    arch = blackwell.arch.model_copy(update={"compute_capability": (12, 0)})
    nowhere = blackwell.model_copy(update={"arch": arch})
    refusal = profiler.refusal(nowhere)
    assert refusal is not None
    assert "expected a node with the resource gpu_sm120, found 1 gpu_sm100, 2 gpu_sm90" in refusal


def test_from_outside_a_cluster_it_answers_the_same(hoppers, client_port) -> None:
    if client_port is None:
        pytest.skip("needs grpc for Ray's client: pip install 'ptxbench[ray]'")
    outside = RayProfiler(Address(f"ray://127.0.0.1:{client_port}", "replay"), root=ROOT, evidence_roots=EVIDENCE)
    case = suite_case(GEMM)
    built = outside.build(Candidate(source=SOURCE), case.arch)
    assert outside.evaluate(case, built) == ReplayProfiler(EVIDENCE).evaluate(case, built) is not None
    outside.close()


def test_what_an_actor_did_when_it_was_killed_is_done_again_and_it_comes_back(profiler) -> None:
    case = suite_case(GEMM)
    built = profiler.build(Candidate(source=SOURCE), case.arch)
    wanted = ReplayProfiler(EVIDENCE).evaluate(case, built)
    assert wanted is not None
    profiler.health()
    devices = profiler._devices["gpu_sm90"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(profiler.evaluate, case, built)
        wait_for(lambda: any(member.state == "busy" for member in devices._members))
        (busy,) = [member for member in devices._members if member.state == "busy"]
        os.kill(ray.get(busy.actor.pid.remote()), signal.SIGKILL)
        assert running.result(60) == wanted
    (note,) = profiler.take_notes()
    assert f"lost during evaluate of {GEMM}, which is done again" in note
    wait_for(lambda: [device.state for device in profiler.health().devices] == ["ready"] * 3)


def test_node_lost_in_a_run_costs_no_turn(checkout, cluster, hoppers, build_cache) -> None:
    (checkout.path / "generated" / "reference").symlink_to(ROOT / "generated" / "reference")
    quiet = ("-p", "no:cacheprovider", "-m", "h100", "--model", "reference")

    def run(name: str, profiler: str) -> pytest.RunResult:
        own = ("--profiler", profiler, "--run", name, "--ptx-json", f"{name}.json")
        result: pytest.RunResult = checkout.runpytest_subprocess(*quiet, *own)
        return result

    run("here", "replay").assert_outcomes(passed=15, deselected=15)

    def lose() -> None:
        turns = checkout.path / "generated" / "there"
        wait_for(lambda: len(list(turns.rglob("*.cu"))) >= 2)
        cluster.remove_node(hoppers.pop(), allow_graceful=False)

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(lose)
        result = run("there", f"ray?profiler=replay&pace={1.5 * PACE_S}")
        killer.result(60)
    result.assert_outcomes(passed=15, deselected=15)
    assert re.search(r"ray, [\d:]+ UTC: \S+: lost during evaluate of \w+, which is done again", result.stdout.str())
    here, there = (json.loads((checkout.path / f"{name}.json").read_text()) for name in ("here", "there"))
    assert comparable(there) == comparable(here)
    assert [turn["verdict"]["outcome"] for turn in there["turns"]] == ["correct"] * 5
