"""Gates of a session: conditions on its results that decide the exit status, in pytest's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ptxbench.errors import InputError

if TYPE_CHECKING:
    from ptxbench.plugin.options import Options
    from ptxbench.report import RunReport
    from ptxbench.report.cell import CellKey
    from ptxbench.report.gates import Answer, Gate, Held, Judged

INFRASTRUCTURE = 70
"""Exit status of a session with gates in which the machinery failed: EX_SOFTWARE of sysexits.h."""

SHOWN_DROPS = 10
"""Metrics that fell, of a comparison with a baseline. The JSON report has all values."""


class Line(NamedTuple):
    """What the summary says of one gate."""

    answer: Answer
    text: str
    details: tuple[str, ...] = ()


class Gates:
    """The gates that the options name. Read before the session runs, so that a mistake in one costs nothing.

    Raises InputError for an expression or a baseline that cannot be read.
    """

    def __init__(self, options: Options) -> None:
        self._gates = tuple(map(_parsed, options.gates))
        self._baseline = _Baseline.of(options.baseline, options.max_regression) if options.baseline else None
        self.lines: tuple[Line, ...] = ()
        """What was found, in the order of the options; empty before anything was judged."""

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return bool(self._gates) or self._baseline is not None

    def judge(self, report: RunReport, absent: Sequence[CellKey], unfinished: str) -> None:
        """Judge all gates. ``absent`` are cells that were asked for and have no record.

        ``unfinished`` says why the report is not of the whole session; then no gate is met. Empty where it is.
        """
        from ptxbench.report.gates import judge_gate

        lines = [_line(judge_gate(gate, report, absent)) for gate in self._gates]
        if self._baseline is not None:
            lines.append(self._baseline.line(report, absent))
        self.lines = tuple(_unfinished(line, unfinished) if unfinished else line for line in lines)

    def give_up(self, why: str) -> None:
        """Say of every gate that it could not be judged."""
        from ptxbench.report.gates import Answer

        texts = [*map(str, self._gates), *([self._baseline.title] if self._baseline is not None else [])]
        self.lines = tuple(Line(Answer.UNKNOWN, f"{text}: not judged: {why}") for text in texts)

    def status(self, faults: int, others_failed: bool) -> int:
        """The exit status: of the machinery's faults first, since a rate without some of its turns decides nothing.

        ``others_failed``: tests that are about no turn failed, which no gate speaks of.
        """
        from ptxbench.report.gates import Answer

        if faults:
            return INFRASTRUCTURE
        met = all(line.answer is Answer.MET for line in self.lines)
        return int(pytest.ExitCode.OK if met and not others_failed else pytest.ExitCode.TESTS_FAILED)

    def properties(self) -> Iterator[tuple[str, str]]:
        """Properties of the JUnit suite: one for each gate."""
        for number, line in enumerate(self.lines, 1):
            yield f"ptxbench.gate.{number}", f"{line.answer.name} {line.text}"


def _parsed(text: str) -> Gate:
    # Late, so that a session without gates does not import them.
    from ptxbench.report.gates import parse

    return parse(text)


class _Baseline(NamedTuple):
    path: Path
    report: RunReport
    most: Fraction

    @classmethod
    def of(cls, path: Path, most: str | None) -> _Baseline:
        from ptxbench.report.compare import DEFAULT_MAX_REGRESSION
        from ptxbench.report.compare_command import share
        from ptxbench.report.sources import read_report

        allowed = DEFAULT_MAX_REGRESSION if most is None else share(most)
        try:
            return cls(path, read_report(path), allowed)
        except InputError as error:
            raise InputError(f"--baseline {error}") from None

    @property
    def title(self) -> str:
        return f"--baseline {self.path.name} --max-regression {float(self.most * 100):g}%"

    def line(self, report: RunReport, absent: Sequence[CellKey]) -> Line:
        from ptxbench.report.compare_settings import differing_settings
        from ptxbench.report.gates import Answer, judge_regression

        held = judge_regression(self.report, report, self.most, absent)
        fallen = [drop for drop in held.drops if drop.answer is not Answer.MET]
        details = [f"{drop.answer.name}: {drop}" for drop in fallen[:SHOWN_DROPS]]
        if len(fallen) > SHOWN_DROPS:
            details.append(f"and {len(fallen) - SHOWN_DROPS} more")
        details += [
            f"warning: {difference.text(('baseline', 'now'))}"
            for difference in differing_settings([self.report, report])
        ]
        return Line(held.answer, f"{self.title}: {_kept(held, self.most)}", tuple(details))


def _kept(held: Held, most: Fraction) -> str:
    """The comparison in words: what was kept, and the value that is closest to its bound or furthest beyond it."""
    if not held.drops:
        return f"nothing to compare: {held.summary}"
    worst = held.drops[0]
    if worst.change is None:
        return f"{held.summary}; worst: {worst}"
    return f"{held.summary}; worst: {worst}, margin {(worst.change + float(most)) * 100:+.1f}%"


def _line(judged: Judged) -> Line:
    findings = judged.findings
    texts = []
    for finding in findings:
        margin = f", margin {finding.margin_text}" if finding.margin_text else ""
        note = f" ({finding.note})" if finding.note else ""
        texts.append(f"{finding.comparison}: {finding.value}{margin}{note}")
    if len(findings) == 1:
        return Line(judged.answer, texts[0])
    details = tuple(f"{finding.answer.name}: {text}" for finding, text in zip(findings, texts, strict=True))
    return Line(judged.answer, str(judged.gate), details)


def _unfinished(line: Line, why: str) -> Line:
    """A gate on part of a session is not met, however good the part is."""
    from ptxbench.report.gates import Answer

    return Line(min(line.answer, Answer.UNKNOWN), f"{line.text}; {why}", line.details)
