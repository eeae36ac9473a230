"""JUnit XML of the whole session: what the suite says of itself, and no test case that is none."""

from __future__ import annotations

from typing import Any

import pytest

from ptxbench.errors import PtxBenchError
from ptxbench.plugin.gating import Gates
from ptxbench.plugin.summary import Summary

OUTCOMES = ("failure", "error", "skipped")


class JUnitSuite:
    """A pytest plugin of the controlling process: has its say before pytest writes the file."""

    def __init__(self, config: pytest.Config, summary: Summary, gates: Gates) -> None:
        self._config = config
        self._summary = summary
        self._gates = gates

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the gates and complete the XML: before pytest writes it, and when every item has been told."""
        self._summary.judge_gates(session)
        xml = self._xml()
        if xml is None:
            return
        for name, value in [*self._properties(session), *self._gates.properties()]:
            xml.add_global_property(name, value)
        _keep_test_cases(xml)

    def _xml(self) -> Any:  # noqa: ANN401 - pytest has no public name for it
        """What writes the file, if one is asked for."""
        plugins = self._config.pluginmanager.get_plugins()
        wanted = ("add_global_property", "node_reporters_ordered", "cnt_double_fail_tests", "stats")
        return next((found for found in plugins if all(hasattr(found, name) for name in wanted)), None)

    def _properties(self, session: pytest.Session) -> list[tuple[str, str]]:
        from ptxbench.report.junit import suite_properties

        if not self._summary.has_turns:
            return []
        complete = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        try:
            # Of a session that was stopped, workers are still writing: the report at the end is another one.
            report = self._summary.report if complete else self._summary.build_report()
            return [("ptxbench.run", self._summary.run_name), *suite_properties(report)]
        except PtxBenchError:
            return []  # the summary says why


def _keep_test_cases(xml: Any) -> None:  # noqa: ANN401 - as above
    """Drop what is no test case from the file, and count the rest.

    Items that a crashed worker began have an entry without a name, and attempts that a plugin repeated one without an
    outcome: readers take both for tests that passed. The last attempt has an entry of its own.
    """
    kept: list[Any] = []
    later: set[tuple[str | None, str | None]] = set()
    for reporter in reversed(xml.node_reporters_ordered):
        entry = reporter.to_xml()
        place = entry.get("classname"), entry.get("name")
        told = any(child.tag in OUTCOMES for child in entry)
        if place[1] is not None and (told or place not in later):
            kept.append(reporter)
            later.add(place)
    xml.node_reporters_ordered[:] = reversed(kept)
    # What pytest takes off the sum of all outcomes to get the number of tests.
    xml.cnt_double_fail_tests = sum(xml.stats.values()) - len(kept)
