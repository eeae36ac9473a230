"""The xdist scheduler, with nodes that only remember what they are told."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.plugin.items import ITEM
from ptxbench.plugin.scheduling import (
    AUTO_VARIABLE,
    SHARE_VARIABLE,
    TrajectoryScheduling,
    assign,
    auto_workers,
    handle_crash,
    own_share,
    scope_of,
    split,
    turn_id,
)

PREFIX = "ptx_tests/test_turns.py"


def ids(trajectories: int, turns: int, checks: int = 2) -> list[str]:
    """As pytest collects them: check by check, trajectory by trajectory."""
    return [
        f"{PREFIX}::test_{check}[m-case_a-h100-v0-t{trajectory}-turn{turn}]"
        for check in range(checks)
        for trajectory in range(trajectories)
        for turn in range(turns)
    ]


class Node:
    """A worker that remembers what it is sent."""

    def __init__(self, share: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{share}", spec=SimpleNamespace(env={SHARE_VARIABLE: str(share)}))
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Config:
    """A pytest configuration that remembers collection errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.hook = SimpleNamespace(pytest_collectreport=lambda report: self.errors.append(str(report.longrepr)))


def scheduler(shares: int, config: Config | None = None) -> Any:
    return TrajectoryScheduling(config or Config(), shares)  # type: ignore[arg-type]


def start(collection: list[str], shares: int) -> tuple[Any, list[Node]]:
    made, nodes = scheduler(shares), [Node(share) for share in range(shares)]
    for node in nodes:
        made.add_node(node)
    for node in nodes:
        assert not made.collection_is_completed
        made.add_node_collection(node, collection)
    made.schedule()
    return made, nodes


def finish(made: Any, node: Node, count: int | None = None) -> list[int]:
    """Let a worker run what it was sent, in order, as far as ``count``. Returns what it ran."""
    ran: list[int] = []
    while len(ran) < len(node.sent) and (count is None or len(ran) < count):
        ran.append(node.sent[len(ran)])
        made.mark_test_complete(node, ran[-1])
    return ran


def test_ids_are_understood():
    assert turn_id(f"{PREFIX}::test_correct[claude-4-gemm_n1-h100-v0-t2-turn3]") == "claude-4-gemm_n1-h100-v0-t2-turn3"
    assert scope_of(f"{PREFIX}::test_correct[claude-4-gemm_n1-h100-v0-t2-turn3]") == "claude-4-gemm_n1-h100-v0-t2"
    for other in ("tests/a.py::test_b", "tests/a.py::test_b[turn3]", "tests/a.py::test[x-v0-t0-turn1]::sub"):
        assert turn_id(other) is None
        assert scope_of(other) == other


@given(st.integers(0, 6), st.integers(1, 3), st.integers(0, 5), st.integers(1, 4))
def test_a_split_is_fair_complete_and_whole(trajectories, turns, others, shares):
    collection = [*ids(trajectories, turns), *(f"tests/a.py::test_{number}" for number in range(others))]
    parts = split(collection, shares)
    assert sorted(index for part in parts for index in part) == list(range(len(collection)))
    scopes = [{scope_of(collection[index]) for index in part} for part in parts]
    assert sum(map(len, scopes)) == len(set.union(*scopes))
    assert max(map(len, scopes)) - min(map(len, scopes)) <= 1
    assert all(part == sorted(part) for part in parts)


def test_neighbours_which_share_a_workload_are_not_torn_apart():
    collection = ids(4, 1)
    assert [{scope_of(collection[index])[-1] for index in part} for part in split(collection, 2)] == [
        {"0", "1"},
        {"2", "3"},
    ]


def test_a_worker_knows_its_share_from_its_environment():
    collection = ids(4, 2)
    assert own_share(collection, {}, 2) == list(range(16))
    assert own_share(collection, {SHARE_VARIABLE: "1"}, 2) == split(collection, 2)[1]


def test_every_worker_runs_its_share_in_order_and_is_then_told_to_stop():
    collection = ids(3, 4)
    made, nodes = start(collection, 2)
    assert [len(node.sent) for node in nodes] == [3, 3]
    assert made.has_pending
    for share, node in enumerate(nodes):
        assert finish(made, node) == split(collection, 2)[share]
        assert node.shutting_down
    assert made.tests_finished
    assert [made.remove_node(node) for node in nodes] == [None, None]


def test_more_workers_than_trajectories():
    made, nodes = start(ids(1, 1, checks=1), 3)
    assert sum(len(node.sent) for node in nodes) == 1
    assert all(node.shutting_down for node in nodes)
    assert not made.tests_finished
    finish(made, next(node for node in nodes if node.sent))
    assert made.tests_finished


def test_nothing_collected_ends_at_once():
    made, nodes = start([], 2)
    assert made.tests_finished
    assert all(node.shutting_down for node in nodes)


def test_a_stopping_session_sends_nothing_more():
    made, nodes = start(ids(2, 4), 1)
    nodes[0].shutdown()
    assert len(finish(made, nodes[0])) == 3


def test_the_replacement_of_a_crashed_worker_finishes_its_share():
    collection = ids(2, 4)
    made, nodes = start(collection, 2)
    ran = finish(made, nodes[0], 2)
    crashed = made.remove_node(nodes[0])
    assert crashed == collection[split(collection, 2)[0][2]]
    assert not made.tests_finished
    finish(made, nodes[1])

    report = SimpleNamespace(outcome="failed", when="???", user_properties=[])
    handle_crash(crashed, report, made)  # type: ignore[arg-type]
    assert report.outcome == "rerun"

    replacement = Node(0)
    made.add_node(replacement)
    assert made.collection_is_completed
    made.add_node_collection(replacement, collection)
    made.schedule()
    assert ran + finish(made, replacement) == split(collection, 2)[0]
    assert made.tests_finished


def test_an_item_that_keeps_crashing_becomes_an_error_and_the_rest_goes_on():
    collection = ids(1, 3, checks=1)
    made, (node,) = start(collection, 1)
    outcomes = []
    for _ in range(2):
        crashed = made.remove_node(node)
        assert crashed == collection[0]
        report = SimpleNamespace(outcome="failed", when="???", user_properties=[])
        handle_crash(crashed, report, made)  # type: ignore[arg-type]
        outcomes.append((report.outcome, report.when, report.user_properties))
        node = Node(0)
        made.add_node(node)
        made.add_node_collection(node, collection)
        made.schedule()
    assert outcomes == [("rerun", "???", []), ("failed", "setup", [(ITEM, "")])]
    assert finish(made, node) == [1, 2]
    assert made.tests_finished


def test_an_item_that_another_plugin_runs_again_runs_once_more_and_no_oftener():
    collection = ids(1, 2, checks=1)
    made, (node,) = start(collection, 1)
    crashed = made.remove_node(node)
    assert crashed is not None
    for _ in range(2):
        made.mark_test_pending(crashed)
    report = SimpleNamespace(outcome="rerun", when="???", user_properties=[])
    handle_crash(crashed, report, made)  # type: ignore[arg-type]
    assert report.outcome == "rerun"
    assert made.may_rerun(crashed), "the other plugin's attempts are not ours"
    replacement = Node(0)
    made.add_node(replacement)
    made.add_node_collection(replacement, collection)
    made.schedule()
    assert finish(made, replacement) == [0, 1]
    assert made.tests_finished


def test_a_worker_that_dies_while_collecting_is_not_counted():
    made, first, second = scheduler(2), Node(0), Node(1)
    made.add_node(first)
    made.add_node(second)
    made.add_node_collection(first, ids(2, 1))
    assert made.remove_node(first) is None
    made.add_node_collection(second, ids(2, 1))
    assert not made.collection_is_completed
    replacement = Node(0)
    made.add_node(replacement)
    made.add_node_collection(replacement, ids(2, 1))
    assert made.collection_is_completed
    made.schedule()
    assert replacement.sent == split(ids(2, 1), 2)[0]


def test_workers_that_disagree_are_an_error_not_a_run():
    config = Config()
    made, nodes = scheduler(2, config), [Node(0), Node(1)]
    for node in nodes:
        made.add_node(node)
    made.add_node_collection(nodes[0], ids(2, 1))
    made.add_node_collection(nodes[1], ids(3, 1))
    made.schedule()
    assert made.tests_finished
    assert [node.sent for node in nodes] == [[], []]
    (error,) = config.errors
    assert "worker gw1 collected other items" in error
    assert "2 extra" in error


def test_a_replacement_that_disagrees_gives_its_share_up():
    config = Config()
    made, node = scheduler(1, config), Node(0)
    made.add_node(node)
    made.add_node_collection(node, ids(2, 2))
    made.schedule()
    made.remove_node(node)
    other = Node(0)
    made.add_node(other)
    made.add_node_collection(other, ids(1, 1))
    made.schedule()
    assert other.sent == []
    assert other.shutting_down
    assert made.tests_finished
    assert len(config.errors) == 1


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], [None, None, None]),
        (["GPU-a"], ["GPU-a"] * 3),
        (["3", "1"], ["3", "1", "3"]),
    ],
)
def test_workers_take_turns_on_the_callers_devices(devices, expected):
    specs = [SimpleNamespace(env={}) for _ in range(3)]
    assign(specs, devices)
    assert [spec.env.get("CUDA_VISIBLE_DEVICES") for spec in specs] == expected
    assert [spec.env[SHARE_VARIABLE] for spec in specs] == ["0", "1", "2"]


@pytest.mark.parametrize("profiler", ["auto", "local"])
def test_auto_means_one_worker_for_each_gpu(profiler):
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-6e1b7a9c,MIG-5e1b7a9c-0000,2"}
    assert auto_workers(profiler, "auto", environ) == 3


@pytest.mark.parametrize(
    ("profiler", "asked", "environ"),
    [
        ("replay", "auto", {}),
        ("auto", "logical", {}),
        ("auto", 4, {}),
        ("auto", "auto", {AUTO_VARIABLE: "5"}),
        ("auto", "auto", {"CUDA_VISIBLE_DEVICES": ""}),
    ],
)
def test_otherwise_xdist_decides(profiler, asked, environ):
    assert auto_workers(profiler, asked, {"CUDA_VISIBLE_DEVICES": "0,1"} | environ) is None
