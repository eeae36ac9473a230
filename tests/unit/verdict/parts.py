"""Verdicts on evidence that is right but for what a test changes."""

from typing import Any

from ptxbench.records import Build, Verdict
from ptxbench.verdict import judge
from tests.unit.factories import make_build, make_call, make_comparison, make_evidence, make_run, make_trial, suite_case


def verdict_of(build: Build | None = None, **changes: Any) -> Verdict:
    return judge(suite_case(), build or make_build(), make_evidence(**changes))


def run_verdict(**changes: Any) -> Verdict:
    return verdict_of(run=make_run(**changes))


def one_bad_trial(**changes: Any) -> Verdict:
    return run_verdict(trials=(make_trial(), make_trial(**changes), make_trial()))


def one_bad_output(iteration: int = -1, **changes: Any) -> Verdict:
    bad = make_call(iteration, outputs=(make_comparison(**changes),))
    return one_bad_trial(checks=(make_call(), bad) if iteration >= 0 else (bad,))
