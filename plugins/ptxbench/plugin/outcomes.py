"""From a turn's record to what pytest says: passed, failed with the reason, or skipped because nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from ptxbench.records import BuildStatus, Outcome, Target, TurnRecord

if TYPE_CHECKING:
    from ptxbench.plugin.bench import Bench
    from ptxbench.plugin.items import PlannedTurn

MAX_FEEDBACK_LINES = 12
"""Of the feedback in a failure's message: its headline and the first facts. The next turn's prompt has the rest."""

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
            f"({_ms(verdict.latency_ms)}{_of_limit(verdict.roofline_share)} against {_ms(verdict.baseline_ms)} of the "
            "baseline)",
        )


def _of_limit(share: float | None) -> str:
    return "" if share is None else f", {100 * share:.1f}% of the device's physical limit,"


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


def add_feedback(failure: BaseException, planned: PlannedTurn, record: TurnRecord, bench: Bench) -> None:
    """Put the first lines of what a model is told of the turn into a failure of ours, right behind the verdict."""
    if not isinstance(failure, pytest.fail.Exception) or failure.pytrace:
        return
    from ptxbench.agent.feedback import feedback
    from ptxbench.models import PastTurn

    candidate = bench.store.candidate(record.key)
    source = candidate.source if candidate is not None else None
    text = feedback(planned.plan.case, PastTurn(record, source), turns_left=0, toolchain=None)
    failure.msg = with_feedback(failure.msg or "", record, text)


def with_feedback(message: str, record: TurnRecord, feedback: str) -> str:
    """A failure's message with the facts of a feedback behind the line that has the verdict's rule."""
    facts = feedback.partition("\n\nWhat to look at:")[0].partition("\n\nNext:")[0]
    told = _quoted("feedback", facts, MAX_FEEDBACK_LINES)
    lines = message.splitlines()
    place = next((number for number, line in enumerate(lines, 1) if f"[{record.verdict.rule}]" in line), len(lines))
    return "\n".join([*lines[:place], *told, *lines[place:]])


def _skip_unknown(record: TurnRecord) -> None:
    if record.verdict.outcome is Outcome.UNKNOWN:
        pytest.skip(f"unknown: {record.verdict.message} [{record.verdict.rule}]")


def _fail(record: TurnRecord, headline: str = "") -> NoReturn:
    text = f"{headline}\n{describe(record)}" if headline else describe(record)
    pytest.fail(f"{record.key}: {text}", pytrace=False)


def _quoted(title: str, text: str, most: int = MAX_LOG_LINES) -> list[str]:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    more = [f"  | ... {len(lines) - most} more lines"] if len(lines) > most else []
    return [f"  {title}:", *(f"  | {line}" for line in lines[:most]), *more] if lines else []


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} ms"
