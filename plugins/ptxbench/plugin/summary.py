"""The end of a session: the table on the terminal and the report as JSON.

Turns are read back from the run folder, so that it makes no difference which process ran them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from ptxbench.errors import PtxBenchError
from ptxbench.plugin.bench import Bench
from ptxbench.plugin.items import ITEM
from ptxbench.plugin.progress import ProgressBoard
from ptxbench.plugin.scheduling import turn_id

if TYPE_CHECKING:
    from ptxbench.records import TrajectoryEnd, TurnKey, TurnRecord
    from ptxbench.report import RunReport

NOTE = "ptxbench.note"
"""User property of an item that carries something which the user should know of the run folder."""


class Summary:
    """A pytest plugin of the controlling process: follows the items' reports, and says at the end what they found."""

    def __init__(self, bench: Bench, board: ProgressBoard) -> None:
        self._bench = bench
        self._board = board
        self._seen: dict[str, pytest.TestReport | None] = {}
        """Turn ids with the report of their set-up, which says what became of the turn in this session."""
        self._skipped: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self._json_error = ""
        self._interrupted = False

    def pytest_keyboard_interrupt(self) -> None:
        """Remember to say how to go on."""
        self._interrupted = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember which turns the session is about, and what workers have to say."""
        found = turn_id(report.nodeid)
        # Ids of other tests may look like ours.
        ours = any(name == ITEM for name, _ in report.user_properties)
        if found is None or not ours:
            return
        report.user_properties[:] = [item for item in report.user_properties if item[0] != ITEM]
        setup = report if report.when == "setup" else None
        self._seen[found] = setup or self._seen.get(found)
        self._notes.update((str(text), None) for name, text in report.user_properties if name == NOTE)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the JSON report. Last, when all workers have ended.

        Also that of a session which was stopped before any turn: an older file would be taken for its report.
        """
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

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print the table, what was skipped and why, and where everything lies."""
        if self._seen:
            self._print_results(terminalreporter)
        if self._interrupted and (self._seen or self._bench.meter.progress().planned):
            terminalreporter.write_line(
                f"Stopped; nothing that finished is lost. Continue with: {self._resuming(config)}"
            )

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

    @cached_property
    def report(self) -> RunReport:
        """The report of every turn that the session is about. Raises PtxBenchError if the run folder cannot be read."""
        from ptxbench.report import build_report, plans_of

        known = {str(plan.key(turn)): plan.key(turn) for plan in self._bench.plans for turn in range(plan.turns)}
        keys = [known[seen] for seen in self._seen if seen in known]
        records = [record for key in keys if (record := self._record(key)) is not None]
        return build_report(records, plans_of(keys), self._ends(keys))

    def _ends(self, keys: Iterable[TurnKey]) -> list[TrajectoryEnd]:
        """How the session's trajectories ended early, as far as that is why a turn did not happen in it."""
        stored = [self._bench.store.load_end(key) for key in {key.trajectory_id: key for key in keys}.values()]
        return [end for end in stored if end is not None and (end.reason == "stopped" or self._was_skipped(end.key))]

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
        stored = store.load(key)
        return stored.record if stored is not None else store.load_fault(key)
