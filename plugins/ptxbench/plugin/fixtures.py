"""Fixtures: the session's run folder, profilers and engine, and one record per item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ptxbench.errors import InfrastructureError, InputError, PtxBenchError
from ptxbench.plugin.bench import BENCH, Bench
from ptxbench.plugin.items import ITEM, RECORD, PlannedTurn, selected_plans
from ptxbench.plugin.progress import PROGRESS
from ptxbench.plugin.scheduling import share_of_session
from ptxbench.plugin.summary import NOTE

if TYPE_CHECKING:
    from ptxbench.agent import Engine, Profilers, RunStore
    from ptxbench.records import TurnRecord


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> Bench:
    """What this session works on."""
    found = pytestconfig.stash.get(BENCH, None)
    if found is None:
        pytest.fail("expected pytest to be started on a PTXBench checkout, found none here", pytrace=False)
    return found


@pytest.fixture(scope="session")
def run(bench: Bench) -> RunStore:
    """The run folder, created or resumed."""
    try:
        return bench.store
    except InputError as error:
        message = str(error)
    # Not above: pytest would show the caught error and its causes too.
    pytest.fail(message, pytrace=False)


@pytest.fixture(scope="session")
def profiler(bench: Bench) -> Iterator[Profilers]:
    """What measures or looks up evidence. Nothing is started before a turn needs it."""
    profilers = bench.open_profilers()
    yield profilers
    profilers.close()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The trajectories of this process, run concurrently; nothing runs before the first turn is asked for."""
    # By name: pytest resolves all that a fixture names again for every item, 1,440 of them in a run of 480 turns.
    bench: Bench = request.getfixturevalue("bench")
    profiler: Profilers = request.getfixturevalue("profiler")
    request.getfixturevalue("run")
    engine = bench.open_engine(selected_plans(share_of_session(request.session)), profiler)
    yield engine
    message = ""
    for close in (engine.close, bench.close_models):
        try:
            close()
        except InfrastructureError as error:
            message = message or _describe(error)
    if message:
        pytest.fail(message, pytrace=False)


@pytest.fixture
def turn(request: pytest.FixtureRequest, engine: Engine) -> TurnRecord:
    """The record of the item's turn.

    Skips for a turn that never happens. A fault of the machinery is an error of this fixture, never a failed test.
    """
    from ptxbench.agent import Skipped
    from ptxbench.report import turn_properties
    from ptxbench.report.junit import PREFIX

    planned: PlannedTurn = request.param
    bench = request.config.stash[BENCH]
    run = bench.store
    properties = request.node.user_properties
    # Of an earlier attempt, where a plugin runs the item again: names are unique.
    properties[:] = [item for item in properties if item[0] == ITEM or not item[0].startswith(PREFIX)]
    message = ""
    try:
        resolution = engine.turn(planned.key)
    except PtxBenchError as error:
        message = _describe(error)
    finally:
        properties.extend((NOTE, note) for note in (*run.take_notes(), *engine.take_notes()))
        if hasattr(request.config, "workerinput"):
            properties.append((PROGRESS, bench.meter.progress().model_dump_json()))
    if message:
        fault = run.load_fault(planned.key)
        properties.extend(turn_properties(fault) if fault is not None else _key_properties(planned))
        pytest.fail(message, pytrace=False)
    if isinstance(resolution, Skipped):
        properties.extend(_key_properties(planned))
        pytest.skip(resolution.reason)
    key = str(planned.key)
    if bench.resolved.get(key) is not resolution:
        bench.resolved[key], bench.told[key] = resolution, turn_properties(resolution)
    # Three tests ask for each turn.
    properties.extend(bench.told[key])
    request.node.stash[RECORD] = resolution
    return resolution


@pytest.fixture
def speedup_floor(request: pytest.FixtureRequest, turn: TurnRecord) -> float:
    """What the turn's speedup must exceed: ``--min-speedup``, else the model's own floor, else 1.0."""
    from ptxbench.plugin.outcomes import floor_of

    return floor_of(turn, request.config.stash[BENCH].options.min_speedup)


def _key_properties(planned: PlannedTurn) -> list[tuple[str, str]]:
    """JUnit properties of a turn that has no record, under the names that records use."""
    key = planned.key.model_dump() | {"variant": planned.plan.variant_name}
    return [(f"ptxbench.{name}", str(value)) for name, value in key.items()]


def _describe(error: PtxBenchError) -> str:
    from ptxbench.plain import plain

    kind = f"infrastructure fault {error.kind}: " if isinstance(error, InfrastructureError) else ""
    # It may quote a tool or a provider, and goes to a terminal and to files.
    return plain(f"{kind}{error}")
