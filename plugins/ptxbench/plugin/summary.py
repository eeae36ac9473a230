"""The end of a session: the table on the terminal, the report as JSON, what gates say, and the exit status.

Turns of other processes are read back from the run folder, so that it makes no difference which one ran them.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from ptxbench.errors import PtxBenchError
from ptxbench.plugin.bench import Bench
from ptxbench.plugin.gating import Gates
from ptxbench.plugin.items import ITEM, planned_turn
from ptxbench.plugin.progress import ProgressBoard
from ptxbench.plugin.scheduling import turn_id

if TYPE_CHECKING:
    from ptxbench.records import TrajectoryEnd, TurnKey, TurnRecord
    from ptxbench.report import RunReport
    from ptxbench.report.cell import CellKey

NOTE = "ptxbench.note"
"""User property of an item that carries something which the user should know of the run folder."""


class Summary:
    """A pytest plugin of the controlling process: follows the items' reports, and says at the end what they found."""

    def __init__(self, bench: Bench, board: ProgressBoard, gates: Gates) -> None:
        self._bench = bench
        self._board = board
        self._gates = gates
        self._expected: set[str] = set()
        """Ids of the turns that the session set out to show."""
        self._faulty: set[str] = set()
        """Items of turns that are errors and no failures: the machinery's."""
        self._others_failed = False
        self._seen: dict[str, pytest.TestReport | None] = {}
        """Turn ids with the report of their set-up, which says what became of the turn in this session."""
        self._skipped: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self._json_error = ""
        self._interrupted = False

    def pytest_keyboard_interrupt(self) -> None:
        """Remember to say how to go on."""
        self._interrupted = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember what is selected."""
        planned = (planned_turn(item) for item in session.items)
        self._expected.update(str(turn.key) for turn in planned if turn is not None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """The same of workers: the controller has no items."""
        self._expected.update(found for nodeid in ids if (found := turn_id(nodeid)) is not None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember which turns the session is about, and what workers have to say."""
        found = turn_id(report.nodeid)
        # Ids of other tests may look like ours.
        ours = any(name == ITEM for name, _ in report.user_properties)
        if found is None or not ours:
            self._others_failed |= report.failed
            return
        if report.failed and report.when != "call":
            self._faulty.add(report.nodeid)
        report.user_properties[:] = [item for item in report.user_properties if item[0] != ITEM]
        setup = report if report.when == "setup" else None
        self._seen[found] = setup or self._seen.get(found)
        self._notes.update((str(text), None) for name, text in report.user_properties if name == NOTE)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What could not be collected is about no turn; workers of xdist, and sessions told to, go on without it."""
        self._others_failed |= report.failed

    def judge_gates(self, session: pytest.Session) -> None:
        """Judge the gates, once all turns that will ever happen in this session have."""
        if not self._gates.given or session.config.option.collectonly or self._bench.options.dry_run:
            return
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._gates.give_up("the session was stopped" if self._seen else "no turn was selected")
            return
        from ptxbench.report.calls import count_of

        try:
            unreached = len(self._turns(self._expected - self._seen.keys()))
            why = f"{count_of(unreached, 'turn')} of this session not reached" if unreached else ""
            self._gates.judge(self.report, self._absent(), why)
        except PtxBenchError as error:
            self._gates.give_up(str(error))

    def _absent(self) -> list[CellKey]:
        """Cells of turns that were told of, none of which has a record."""
        from ptxbench.report.cell import CellKey

        known = {cell.key for cell in self.report.cells}
        turns = self._turns(self._seen)
        cells = dict.fromkeys(CellKey(turn.model, turn.case, turn.arch) for turn in turns)
        return [cell for cell in cells if cell not in known]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the JSON report, and let the gates decide the exit status. Last, when all workers have ended.

        Also the report of a session which was stopped before any turn: an older file would be taken for its report.
        """
        if self._gates.lines and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = self._gates.status(len(self._faulty), self._others_failed)
        self._write_json(session)

    def _write_json(self, session: pytest.Session) -> None:
        options = self._bench.options
        path = options.ptx_json
        happened = self._seen or self._interrupted
        if path is None or not happened or session.config.option.collectonly or options.dry_run:
            return
        from ptxbench.report import write_report

        try:
            write_report(path, self.report)
        except PtxBenchError as error:
            self._json_error = f"--ptx-json {error}"
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        except Exception as error:  # a defect of ours: raised here, it would keep pytest from telling what failed
            self._json_error = (
                f"--ptx-json {path}: not written, by a defect of PTXBench: {type(error).__name__}: {error}"
            )
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print the table, what was skipped and why, and where everything lies."""
        if self._seen:
            self._print_results(terminalreporter)
        self._print_gates(terminalreporter)
        # With workers the session began when they had collected: this process plans nothing and is told of turns late.
        if self._interrupted and self._expected and not config.option.collectonly:
            terminalreporter.write_line(
                f"Stopped; nothing that finished is lost. Continue with: {self._resuming(config)}"
            )

    def _print_gates(self, terminalreporter: pytest.TerminalReporter) -> None:
        from ptxbench.report.calls import count_of

        if not self._gates.lines:
            return
        if not self._seen:
            terminalreporter.section("PTXBench")
        for line in self._gates.lines:
            met = line.answer.name == "MET"
            terminalreporter.write_line(f"gate {line.answer.name:<7}  {line.text}", green=met, red=not met)
            for detail in line.details:
                terminalreporter.write_line(f"    {detail}")
        if self._faulty:
            faults = count_of(len(self._faulty), "test")
            terminalreporter.write_line(f"gates: {faults} could not be judged for infrastructure errors", red=True)

    def _resuming(self, config: pytest.Config) -> str:
        """The command that continues this session."""
        given = iter(map(str, config.invocation_params.args))
        kept = []
        for argument in given:
            if argument == "--run":
                next(given, None)
            elif not argument.startswith("--run="):
                kept.append(argument)
        return shlex.join(["pytest", *kept, f"--run={self._bench.run_name}"])

    def _print_results(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("PTXBench")
        try:
            self._print_table(terminalreporter)
            write(self._totals())
        except PtxBenchError as error:
            write(f"no report: {error}", red=True)
        for reason, count in self._skipped.items():
            write(f"skipped {count}: {reason}")
        for note in (*self._notes, *self._left_over(), *self._bench.left_out):
            write(note, yellow=True)
        if self._json_error:
            write(self._json_error, red=True)
        elif self._bench.options.ptx_json is not None:
            write(f"Report: {self._bench.options.ptx_json}")
        folder = self._bench.run_folder
        here = terminalreporter.startpath
        shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
        # With "=": pytest takes a path that stands alone for a place to find tests in.
        write(f"Run: {shown} ({shlex.join([f'--run={self._bench.run_name}'])} resumes it)")

    def _left_over(self) -> list[str]:
        """What the run paid for beside its turns. Budgets count it, tables do not."""
        from ptxbench.report.calls import describe_left_over

        names = {model.name for model in self._bench.conversing(self._bench.plans)}
        if not names:
            return []
        pending = [found for found in self._bench.store.pending_replies() if found.key.model in names]
        return describe_left_over([found.exchange.reply for found in pending if found.exchange.reply is not None])

    def _totals(self) -> str:
        from ptxbench.report import describe_calls
        from ptxbench.report.calls import count_of

        rows = self.report.turns
        texts = [f"{count_of(len(rows), 'turn')}, {sum(row.verdict.correct for row in rows)} correct"]
        if self.report.calls is not None:
            texts.append(describe_calls(self.report.calls))
        busy = self._board.progress().busy_share
        if busy is not None:
            texts.append(f"GPU busy {busy:.0%} of the time since the first measurement")
        return f"Total: {'; '.join(texts)}."

    def _print_table(self, terminalreporter: pytest.TerminalReporter) -> None:
        from ptxbench.report import render

        lines = render(self.report.cells, width=terminalreporter._tw.fullwidth)
        for line in lines or ["no turn has a record"]:
            terminalreporter.write_line(line)

    @property
    def has_turns(self) -> bool:
        """Whether any turn was told of."""
        return bool(self._seen)

    @property
    def run_name(self) -> str:
        """What ``--run`` would have to be to resume the run."""
        return self._bench.run_name

    @cached_property
    def report(self) -> RunReport:
        """The report of every turn that the session is about. Raises PtxBenchError if the run folder cannot be read."""
        return self.build_report()

    def build_report(self) -> RunReport:
        """The same, of what the folder holds now."""
        from ptxbench.report import build_report, plans_of
        from ptxbench.report.summary import unselected_beside
        from ptxbench.report.turn_rows import Work

        keys = self._turns(self._seen)
        records = [record for key in keys if (record := self._record(key)) is not None]
        cases = {(plan.case.name, plan.case.arch.name): plan.case for plan in self._bench.plans}
        return build_report(
            records,
            plans_of(keys),
            self._ends(keys),
            unselected=[key for key in unselected_beside(keys) if str(key) not in self._expected],
            work=lambda record: Work.of(cases[record.key.case, record.key.arch]),
            suites=self._bench.store.identity.suites,
        )

    def _turns(self, ids: Iterable[str]) -> list[TurnKey]:
        """The turns of these ids, without those that are no turn's."""
        return [self._planned[found] for found in ids if found in self._planned]

    @cached_property
    def _planned(self) -> dict[str, TurnKey]:
        return {str(plan.key(turn)): plan.key(turn) for plan in self._bench.plans for turn in range(plan.turns)}

    def _ends(self, keys: Iterable[TurnKey]) -> list[TrajectoryEnd]:
        """How the session's trajectories ended early, as far as that is why a turn did not happen in it."""
        trajectories: dict[str, list[TurnKey]] = defaultdict(list)
        for key in keys:
            trajectories[key.trajectory_id].append(key)
        stored = [(self._bench.store.load_end(told[0]), told) for told in trajectories.values()]
        return [
            end
            for end, told in stored
            if end is not None
            # The end's own turn need not have been selected: one behind it was skipped for it too.
            and (end.reason == "stopped" or any(self._was_skipped(key) for key in told if key.turn >= end.key.turn))
        ]

    def _was_skipped(self, key: TurnKey) -> bool:
        setup = self._seen.get(str(key))
        return setup is not None and setup.skipped

    def _record(self, key: TurnKey) -> TurnRecord | None:
        """What became of a turn: its record, or its fault; None if it never happened.

        The folder may hold a record of an earlier session. It counts only if this one resolved the turn to it.
        """
        store = self._bench.store
        setup = self._seen[str(key)]
        if setup is not None and setup.failed:
            return store.load_fault(key)
        if setup is not None and setup.skipped:
            return None
        known = self._bench.resolved.get(str(key))
        if known is not None:
            return known  # as it is stored: reading it again would be much of what a finished run costs
        stored = store.load(key)
        return stored.record if stored is not None else store.load_fault(key)
