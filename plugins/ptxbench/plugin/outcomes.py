"""From a turn's record to what pytest says: passed, failed with the reason, or skipped because nobody knows."""

from __future__ import annotations

from typing import NoReturn

import pytest

from ptxbench.records import BuildStatus, Outcome, Target, TurnRecord

MAX_LOG_LINES = 20
"""Of a compiler log or of a candidate's output: the first errors matter, the folder has the rest."""


def expect_correct(record: TurnRecord) -> None:
    """Pass if the turn's kernel computes the right answer, and only if somebody checked."""
    _skip_unknown(record)
    if not record.verdict.correct:
        _fail(record)


def expect_target_instruction(record: TurnRecord) -> None:
    """Pass if an instruction of the target family executed in a correct kernel."""
    _skip_unknown(record)
    verdict = record.verdict
    if not verdict.correct:
        _fail(record)
    if verdict.target is Target.UNKNOWN:
        pytest.skip(f"unknown: {verdict.target_message} [{verdict.target_rule}]")
    if verdict.target is Target.NOT_EXECUTED:
        _fail(record, f"target instruction not executed: {verdict.target_message} [{verdict.target_rule}]")


def expect_speedup(record: TurnRecord, floor: float) -> None:
    """Pass if a correct kernel's speedup over the baseline is above ``floor``."""
    _skip_unknown(record)
    verdict = record.verdict
    if not verdict.correct:
        _fail(record)
    if verdict.speedup is None:
        pytest.skip(f"unknown: no speedup; flags: {', '.join(verdict.flags) or 'none'}")
    if verdict.speedup <= floor:
        _fail(
            record,
            f"speedup {verdict.speedup:.3f} is not above {floor:g} "
            f"({_ms(verdict.latency_ms)} against {_ms(verdict.baseline_ms)} of the baseline)",
        )


def floor_of(record: TurnRecord, option: float | None) -> float:
    """What ``expect_speedup`` compares with: the option, else the model's own floor for the case, else 1.0."""
    return next(floor for floor in (option, record.min_speedup, 1.0) if floor is not None)


def describe(record: TurnRecord) -> str:
    """The verdict in a few lines: outcome, rule, and the first lines of what the tools said."""
    verdict = record.verdict
    lines = [f"{verdict.outcome.value} [{verdict.rule}]: {verdict.message}"]
    build = record.build
    if build is not None and build.status is BuildStatus.COMPILE_ERROR:
        lines += _quoted("compiler", build.log)
    if build is not None:
        lines += [f"  {finding.rule}: {finding.message}" for finding in build.findings[:MAX_LOG_LINES]]
    if record.evidence is not None and not verdict.correct:
        lines += _quoted("output of the candidate", record.evidence.run.output_tail)
    return "\n".join(lines)


def _skip_unknown(record: TurnRecord) -> None:
    if record.verdict.outcome is Outcome.UNKNOWN:
        pytest.skip(f"unknown: {record.verdict.message} [{record.verdict.rule}]")


def _fail(record: TurnRecord, headline: str = "") -> NoReturn:
    text = f"{headline}\n{describe(record)}" if headline else describe(record)
    pytest.fail(f"{record.key}: {text}", pytrace=False)


def _quoted(title: str, text: str) -> list[str]:
    lines = text.strip().splitlines()
    more = [f"  | ... {len(lines) - MAX_LOG_LINES} more lines"] if len(lines) > MAX_LOG_LINES else []
    return [f"  {title}:", *(f"  | {line}" for line in lines[:MAX_LOG_LINES]), *more] if lines else []


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} ms"
