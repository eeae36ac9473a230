"""The pytest plugin: every hook it implements, each handed to the module that does the work.

It is inert unless pytest is started on a PTXBench checkout: elsewhere it adds no option, mark, item or scheduler.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.plugin import items, options, scheduling
from ptxbench.plugin.allotment import Allotment
from ptxbench.plugin.bench import BENCH, Bench
from ptxbench.plugin.fixtures import bench, engine, profiler, run, speedup_floor, turn

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

__all__ = ["bench", "engine", "profiler", "run", "speedup_floor", "turn"]

_RUN = "ptxbench_run"
"""Key of the run folder in what an xdist controller tells its workers."""
_ALLOTMENT = "ptxbench_allotment"
"""The same of what the session may spend."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options, on a checkout."""
    config = pluginmanager.get_plugin("pytestconfig")
    if isinstance(config, pytest.Config) and options.started_in(config) is not None:
        options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set up the session's ``Bench`` and register the marks."""
    root = options.started_in(config)
    if root is None:
        return
    _spare_garbage(config)
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if not worker:
        options.check_settings(config, root)
    folder = Path(worker[_RUN]) if _RUN in worker else None
    allotment = Allotment(**worker[_ALLOTMENT]) if _ALLOTMENT in worker else None
    with _usage_errors():
        found = options.read_options(config)
    session = config.stash[BENCH] = Bench(root, found, folder, allotment)
    for name, meaning in items.marks(root, session.options.trace_sets):
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if session.options.dry_run and hasattr(config.option, "dist"):
        # What would run is known without workers.
        config.option.dist, config.option.tx = "no", []
    if not worker:
        # Only here, so that a session elsewhere imports nothing of the reports.
        from ptxbench.plugin.gating import Gates
        from ptxbench.plugin.junit_suite import JUnitSuite
        from ptxbench.plugin.progress import ProgressBoard
        from ptxbench.plugin.summary import Summary

        with _usage_errors():
            gates = Gates(session.options)
        board = ProgressBoard(session)
        summary = Summary(session, board, gates)
        config.pluginmanager.register(board, "ptxbench-progress")
        config.pluginmanager.register(summary, "ptxbench-summary")
        config.pluginmanager.register(JUnitSuite(config, summary, gates), "ptxbench-junit")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of model clients that were opened to see whether they can be, as an xdist controller does."""
    found = config.stash.get(BENCH, None)
    if found is not None:
        # What could not be stored was told when the engine closed.
        with suppress(InfrastructureError):
            found.close_models()
        found.release()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item per turn of every function that asks for one."""
    session = metafunc.config.stash.get(BENCH, None)
    if session is None or items.FIXTURE not in metafunc.fixturenames:
        return
    try:
        items.parametrize(metafunc, session.plans)
    except InputError as error:
        raise pytest.Collector.CollectError(str(error)) from None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say which items are ours."""
    items.name_ours([item])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Say in a failure what a model is told of the turn, before pytest makes a report of it."""
    found, planned = item.config.stash.get(BENCH, None), items.planned_turn(item)
    record = item.stash.get(items.RECORD, None)
    if found is not None and planned is not None and record is not None and call.excinfo is not None:
        from ptxbench.plugin.outcomes import add_feedback

        add_feedback(call.excinfo.value, planned, record, found)


def _spare_garbage(config: pytest.Config) -> None:
    """Look for cyclic garbage less often: what a session makes is kept, and looking through it again and again was a
    third of a finished run's time."""
    before = gc.get_threshold()
    gc.set_threshold(500_000, 20, 100)
    # First here is last there: pytest itself collects garbage when it ends.
    config.add_cleanup(lambda: gc.set_threshold(*before))
    config.add_cleanup(gc.unfreeze)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the garbage collector off what was collected, which lives until the end."""
    if session.config.stash.get(BENCH, None) is not None:
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The same for all that the session made since: pytest looks for garbage again when it ends."""
    if session.config.stash.get(BENCH, None) is not None:
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Look at what the run needs before the first test, so that what cannot work is one error and not hundreds.

    With ``--dry-run`` this is where the session ends.
    """
    found = session.config.stash.get(BENCH, None)
    if found is None or session.config.option.collectonly or session.testsfailed:
        return None
    plans = items.selected_plans(session.items)
    if found.options.dry_run:
        from ptxbench.plugin.dry_run import preview

        with _usage_errors():
            preview(found, plans, session.config)
        return True
    if plans:
        with _usage_errors():
            found.begin(plans)
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: Sequence[str]) -> None:
    """The same on the controller, which has no items of its own."""
    found = node.config.stash.get(BENCH, None)
    turns = set(map(scheduling.scope_of, filter(scheduling.turn_id, ids)))
    if found is not None and turns:
        with _usage_errors():
            plans = [plan for plan in found.plans if plan.id in turns]
            if plans:
                found.begin(plans)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: one worker for each GPU. Without any, xdist decides: one for each processor."""
    if options.started_in(config) is None:
        return None
    return scheduling.auto_workers(config.getoption("ptx_profiler"), config.getoption("numprocesses"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Give every worker its share and its GPU before it starts."""
    if config.stash.get(BENCH, None) is not None:
        scheduling.assign(specs, scheduling.callers_devices())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker which run folder this session writes to, and what it may spend."""
    found = node.config.stash.get(BENCH, None)
    if found is None:
        return
    with _usage_errors():
        node.workerinput[_RUN] = str(found.run_folder)
        node.workerinput[_ALLOTMENT] = found.shared(node.workerinput["workercount"])._asdict()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> object:
    """Schedule whole trajectories."""
    return scheduling.make_scheduler(config) if config.stash.get(BENCH, None) is not None else None


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: object) -> None:
    """Give the item of a crashed worker another chance."""
    scheduling.handle_crash(crashitem, report, sched)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name what ``pytest_handlecrashitem`` lets run again."""
    return ("rerun", "R", "RERUN") if str(report.outcome) == "rerun" else None


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise pytest.UsageError(str(error)) from None
