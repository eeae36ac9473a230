"""``ptxbench compare``."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from ptxbench.errors import InputError

if TYPE_CHECKING:
    from ptxbench.report.compare import Comparison


class Compared:
    """What the command found: lines to print, and the exit status."""

    def __init__(self, comparison: Comparison, notes: Iterable[str], options: argparse.Namespace) -> None:
        self._comparison = comparison
        self._notes = tuple(notes)
        self._options = options

    @property
    def lines(self) -> list[str]:
        """The comparison as text or as JSON."""
        from ptxbench.report.compare_text import render_comparison

        if self._options.json:
            return [self._comparison.model_dump_json(indent=1)]
        return [*self._notes, *render_comparison(self._comparison, shutil.get_terminal_size().columns)]

    @property
    def status(self) -> int:
        """0, or 1 for a regression where that was asked for."""
        return int(self._options.fail_on_regression and self._comparison.regressed)


def run(options: argparse.Namespace) -> Compared:
    """Compare what the options name. Raises InputError for what is neither a run nor a report."""
    from ptxbench.report.compare import DEFAULT_MAX_REGRESSION, compare_reports
    from ptxbench.report.sources import load

    most = DEFAULT_MAX_REGRESSION if options.max_regression is None else share(options.max_regression)
    sources = load(options.runs)
    comparison = compare_reports({source.name: source.report for source in sources}, most)
    return Compared(comparison, [note for source in sources for note in source.notes], options)


def share(text: str) -> Fraction:
    """Read ``5%`` or ``0.05``. Raises InputError for anything else, also for more than all."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(%?)", text)
    found = Fraction(match[1]) / (100 if match[2] else 1) if match else Fraction(-1)
    if not 0 <= found <= 1:
        raise InputError(
            f"--max-regression: expected a percentage from 0% to 100%, found {text[:40]!r}; write for example 5%"
        )
    return found
