"""Tokens, money and time of model calls, in every form of the report."""

import json
from typing import Any

import pytest

from ptxbench.records import Exchange, FailedAttempt, PromptIdentity, Reply, TrajectoryEnd, TurnRecord, Usage
from ptxbench.report import (
    CellKey,
    CellPlan,
    build_report,
    calls_of,
    describe_calls,
    render,
    summarize,
    turn_properties,
)
from ptxbench.report.calls import describe_left_over, money, short_count
from tests.unit.factories import GEMM, digest, make_record

CELL = CellKey("reference", GEMM, "h100")


def asked(turn: int = 0, *, trajectory: int = 0, attempts: int = 0, **changes: Any) -> TurnRecord:
    """A correct turn that a call of 1,000 + 200 tokens and 4 seconds brought."""
    values: dict[str, Any] = {
        "text": "```cuda```",
        "ended": "stop",
        "finish_reason": "stop",
        "usage": Usage(input_tokens=1000, cached_input_tokens=600, output_tokens=200, reasoning_tokens=50),
        "cost_usd": 0.5,
        "cost_source": "models_file",
        "latency_s": 4.0,
        "model": "m-0611",
    }
    failed = FailedAttempt(kind="timeout", message="late", waited_s=1.0)
    exchange = Exchange(
        added=(),
        prompt_sha256=digest("f"),
        prompt=PromptIdentity(template="1", pack="hopper 3", pack_sha256=digest("e"), level="full"),
        asked_at="2026-11-29T20:00:00+00:00",
        attempts=(failed,) * attempts,
        reply=Reply(**{**values, **changes}),
    )
    return make_record(turn, trajectory=trajectory, exchange=exchange)


def end(turn: int, reason: str, trajectory: int = 0) -> TrajectoryEnd:
    key = make_record(turn, trajectory=trajectory).key
    return TrajectoryEnd(key=key, reason=reason, message="why")  # type: ignore[arg-type]


def test_sums_say_what_they_leave_out() -> None:
    silent = asked(2, usage=Usage(), cost_usd=None, latency_s=40.0, ended="output_limit", attempts=2)
    found = calls_of([asked(0), asked(1, latency_s=6.0, ended="filtered"), silent, make_record(3)])
    assert found is not None
    assert (found.calls, found.uncounted, found.unpriced) == (3, 1, 1)
    assert (found.input_tokens, found.cached_input_tokens) == (2000, 1200)
    assert (found.output_tokens, found.reasoning_tokens) == (400, 100)
    assert (found.cost_usd, found.latency_s, found.median_latency_s) == (1.0, 50.0, 6.0)
    assert (found.truncated, found.filtered, found.failed_attempts) == (1, 1, 2)
    assert describe_calls(found) == (
        "3 model calls, 2.0k input (1.2k cached) and 400 output tokens, USD 1.00+, median call 6.0 s, "
        "1 call without a token count"
    )


def test_without_a_language_model_there_is_nothing_to_say() -> None:
    assert calls_of([make_record()]) is None
    (cell,) = summarize([make_record()])
    assert (cell.calls, cell.context_exhausted, cell.unasked) == (None, 0, 0)
    assert "Calls" not in "\n".join(render([cell], 100))
    assert build_report([make_record()]).calls is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9_949, "9.9k"), (9_950, "10k"), (999_499, "999k"), (999_500, "1.00M")],
)
def test_counts_in_a_few_characters(number: int, text: str) -> None:
    assert short_count(number) == text


def test_small_sums_have_more_digits() -> None:
    assert money(calls_of([asked(cost_usd=0.00214)])) == "0.0021"  # type: ignore[arg-type]
    assert money(calls_of([asked(cost_usd=12.345)])) == "12.35"  # type: ignore[arg-type]
    assert money(calls_of([asked(cost_usd=None)])) == "?"  # type: ignore[arg-type]


def test_each_cell_and_the_whole_report_have_their_calls() -> None:
    report = build_report([asked(0), asked(1), make_record(0, model="another")])
    other, cell = report.cells
    assert other.calls is None
    assert cell.calls == report.calls == calls_of([asked(0), asked(1)])
    row = report.turns[1].call
    assert row is not None
    assert (row.model, row.ended, row.cost_usd, row.latency_s) == ("m-0611", "stop", 0.5, 4.0)
    assert (row.prompt_sha256, row.pack, row.level) == (digest("f"), "hopper 3", "full")
    document = json.loads(report.model_dump_json())
    assert document["calls"]["input_tokens"] == 2000
    assert document["turns"][0]["call"] is None


def test_the_order_does_not_matter() -> None:
    rows = [asked(0, trajectory=number, latency_s=0.1 * number) for number in range(4)]
    ends = [end(1, "budget", trajectory) for trajectory in range(4)]
    there, back = build_report(rows, ends=ends), build_report(rows[::-1], ends=ends[::-1])
    assert there.ends == back.ends
    assert there.cells[0].unasked == back.cells[0].unasked


def test_notes_tell_what_calls_took_and_what_became_of_them() -> None:
    records = [asked(0, ended="output_limit"), asked(1, attempts=3)]
    cells = summarize(records, {CELL: CellPlan(1, 8)}, [end(2, "context_exhausted")])
    text = " ".join(" ".join(render(cells, 400)).split())
    assert f"Calls: {GEMM}: 2 model calls, 2.0k input (1.2k cached) and 400 output tokens, USD 1.00, " in text
    assert (
        "Remarks (calls): replies cut off at the output limit 1, failed attempts before a reply 3, "
        "trajectories ended by a full context 1." in text
    )
    assert "Partial" not in text


def test_turns_that_a_budget_kept_from_being_asked_are_not_in_n() -> None:
    ends = [end(2, "budget"), end(0, "budget", trajectory=1), end(1, "context_exhausted", trajectory=2)]
    records = [asked(0), asked(1), asked(0, trajectory=2)]
    (cell,) = summarize(records, {CELL: CellPlan(trajectories=3, turns=4)}, ends)
    assert cell.unasked == 2 + 4
    assert [(at.limit, at.correct.hits, at.correct.turns) for at in cell.limits] == [(1, 2, 2), (4, 3, 6)]
    assert cell.pauses == {"budget": 6}
    assert "Partial: the budget was spent; 6 turns were not asked for" in " ".join(render([cell], 400))


def test_each_reason_not_to_ask_is_named_and_one_turn_is_one() -> None:
    ends = [end(3, "budget"), end(1, "stopped", trajectory=1), end(2, "unmeasured", trajectory=2)]
    (cell,) = summarize([asked(0)], {CELL: CellPlan(trajectories=3, turns=4)}, ends)
    text = " ".join(render([cell], 400))
    assert "Partial: the budget was spent; 1 turn was not asked for and is left out of N." in text
    assert "Partial: the run was stopped; 3 turns were not asked for and are left out of N." in text
    assert "Partial: there was nothing to measure with; 2 turns were" in text


def test_one_call_is_one() -> None:
    found = calls_of([asked(0)])
    assert found is not None
    assert describe_calls(found).startswith("1 model call, 1.0k input")


def test_tokens_that_nobody_counted_are_not_zero() -> None:
    found = calls_of([asked(0, usage=Usage()), asked(1, usage=Usage(), cost_usd=None)])
    assert found is not None
    assert describe_calls(found) == "2 model calls without token counts, USD 0.5000+, median call 4.0 s"


def test_replies_that_no_turn_is_made_of_are_told() -> None:
    replies = [record.exchange.reply for record in (asked(0), asked(1, cost_usd=None)) if record.exchange]
    assert describe_left_over([]) == []
    assert describe_left_over(replies[:1]) == [  # type: ignore[arg-type]
        "Beside these calls the run holds 1 reply that no turn is made of, USD 0.5000 (replies/): "
        "budgets count them, the table does not."
    ]
    (text,) = describe_left_over(replies)  # type: ignore[arg-type]
    assert "2 replies that no turn is made of, USD 0.5000+ (replies/)" in text
    assert "USD ?" in describe_left_over(replies[1:])[0]  # type: ignore[arg-type]


def test_without_a_plan_trajectories_that_never_began_are_known_by_their_end() -> None:
    (cell,) = summarize([asked(0), asked(1)], None, [end(0, "budget", trajectory=1)])
    assert (cell.trajectories, cell.unasked, cell.limits[-1].correct.turns) == (2, 2, 2)


def test_properties_of_a_turn() -> None:
    found = dict(turn_properties(asked(attempts=2)))
    assert found["ptxbench.answered_by"] == "m-0611"
    assert (found["ptxbench.input_tokens"], found["ptxbench.cached_input_tokens"]) == ("1000", "600")
    assert (found["ptxbench.output_tokens"], found["ptxbench.reasoning_tokens"]) == ("200", "50")
    assert (found["ptxbench.cost_usd"], found["ptxbench.call_latency_s"]) == ("0.5", "4.0")
    assert (found["ptxbench.reply_ended"], found["ptxbench.failed_attempts"]) == ("stop", "2")
    assert "ptxbench.answered_by" not in dict(turn_properties(make_record()))
