"""How far a session is: a line while it runs, and totals at its end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.plugin.bench import Bench
from ptxbench.plugin.status_line import StatusLine

if TYPE_CHECKING:
    from ptxbench.agent.meter import Progress

PROGRESS = "ptxbench.progress"
"""User property with which an xdist worker tells the controller where it is; taken off before anybody reports it."""


class ProgressBoard:
    """A pytest plugin of the controlling process: knows where the session is, and shows it on a terminal."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._workers: dict[str, Progress] = {}
        self._line: StatusLine | None = None
        self._writer: Any = None
        self._original: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear where a worker is."""
        told = [str(value) for name, value in report.user_properties if name == PROGRESS]
        if told:
            from ptxbench.agent.meter import Progress

            self._workers[getattr(report, "worker_id", "")] = Progress.model_validate_json(told[-1])
            report.user_properties[:] = [item for item in report.user_properties if item[0] != PROGRESS]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Show the line, if there is somebody who sees it and nothing that it would get in the way of."""
        config = session.config
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        writer: Any = getattr(reporter, "_tw", None)
        file = getattr(writer, "_file", None)
        if file is None or config.option.collectonly or config.option.capture == "no" or not _is_terminal(file):
            return
        self._line = StatusLine(file, lambda: describe(self.progress()))
        self._writer, self._original, writer._file = writer, file, self._line.file
        self._line.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Take the line away."""
        if self._line is not None:
            self._line.close()
            self._writer._file = self._original
            self._line = None

    def progress(self) -> Progress:
        """Where the session is; with workers, as of the last that each has told."""
        here = self._bench.meter.progress()
        for told in self._workers.values():
            here = here.plus(told)
        return here


def _is_terminal(file: Any) -> bool:  # noqa: ANN401 - pytest does not say what it is
    try:
        return bool(file.isatty()) and file.fileno() == sys.__stdout__.fileno() and os.environ.get("TERM") != "dumb"  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return False


def describe(progress: Progress) -> str:
    """The line; empty before anything is planned."""
    from ptxbench.report.calls import short_count

    if not progress.planned:
        return ""
    parts = [f"{progress.resolved} of {progress.planned} turns", f"{progress.correct} correct"]
    if progress.calls:
        parts += [f"USD {progress.usd:.2f}", f"{short_count(progress.tokens)} tokens"]
    if progress.busy_share is not None:
        parts.append(f"GPU busy {progress.busy_share:.0%}")
    if progress.left_s is not None and progress.resolved < progress.planned:
        parts.append(f"{duration(progress.left_s)} left")
    return "PTXBench: " + ", ".join(parts)


def duration(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
