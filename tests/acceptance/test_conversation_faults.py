"""What goes wrong between us and a model: over real HTTP, through real pytest."""

from __future__ import annotations

import threading
from importlib.util import find_spec

import pytest

from ptxbench.records import Usage
from tests.acceptance.conversations import Conversations, Entry, answer, by_turn, first_then, refused, table
from tests.support.llm_script import (
    Answer,
    Drop,
    Step,
    context_length,
    malformed,
    overloaded,
    rate_limited,
    server_error,
)
from tests.support.llm_server import LlmServer, Seen


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


ANTHROPIC = {"provider": "litellm", "model": "anthropic/claude-test-1", "stream": False}


def test_what_passes_is_tried_again_and_leaves_nothing_but_a_trace(talk: Conversations) -> None:
    """Seven trajectories at once, each of which first meets another trouble."""
    trouble: list[Step] = [
        rate_limited("1.5"),
        server_error(),
        Drop(),
        refused(0, drop_after=2),
        malformed(),
        overloaded(),
        refused(0, drop_after=2, clean_drop=True),
    ]
    options = ("--trajectories=7", "--concurrency=7")
    with LlmServer(first_then(*trouble, then=lambda seen: refused(0))) as server:
        result = talk.run(Entry(server), turns=1, more=options)
    result.assert_outcomes(failed=7, deselected=203)
    assert talk.outcomes() == ["compile_error"] * 7
    attempts = [record.exchange.attempts for record in talk.records() if record.exchange is not None]
    kinds = sorted(attempt.kind for each in attempts for attempt in each)
    assert kinds == sorted(
        ["rate_limited", "server_error", "connection", "connection", "malformed_response", "overloaded", "connection"]
    )
    result.stdout.fnmatch_lines(["Remarks (calls): failed attempts before a reply 7."])
    # The provider's word to wait holds for all: nobody who had not asked yet asks within it.
    told = next(seen.at for seen in server.seen if seen.number == 0)
    assert min(seen.at for seen in server.seen[7:]) - told >= 1.4
    with LlmServer(refused(0)) as quiet:
        talk.run(Entry(quiet), turns=1, run="quiet", more=options)
    assert len(quiet.seen) == 7
    assert talk.report() == talk.report("quiet")


def test_a_slow_stream_is_waited_for_and_others_go_on_meanwhile(talk: Conversations) -> None:
    together = threading.Barrier(6)

    def script(_: Seen) -> Answer:
        together.wait(60)  # nobody is answered before all have asked
        return answer("", gap_s=0.2, pieces=4)

    with LlmServer(script) as server:
        result = talk.run(Entry(server), turns=1, more=["--trajectories=6", "--concurrency=6"])
    result.assert_outcomes(failed=6, deselected=174)
    latencies = [
        record.exchange.reply.latency_s for record in talk.records() if record.exchange and record.exchange.reply
    ]
    assert len(latencies) == 6
    assert min(latencies) >= 4 * 0.2


def test_a_full_context_ends_the_trajectory_and_is_not_asked_again(talk: Conversations) -> None:
    with LlmServer(by_turn([answer(""), context_length("openai")])) as server:
        result = talk.run(Entry(server), turns=4)
        again = talk.run(Entry(server), turns=4)
    assert len(server.seen) == 2
    for found in (result, again):
        _ended_with_a_full_context(found)
    assert talk.judged_again() == table(again)
    (end,) = talk.store().ends()
    assert (end.reason, end.key.turn) == ("context_exhausted", 1)
    report = talk.report()
    assert report["cells"][0]["context_exhausted"] == 1
    assert report["cells"][0]["limits"][-1]["correct"]["turns"] == 4
    replayed = talk.checkout.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--profiler=replay", "-m", "h100 and gemm", "-k", "test_correct"),
        *("--model=replay:talk", "--run=again", "--ptx-json=again.json"),
    )
    # As many turns as the trajectories were given, though none of them took so many.
    replayed.assert_outcomes(failed=1, skipped=3, deselected=116)
    assert talk.report("again")["cells"][0]["limits"] == report["cells"][0]["limits"]
    assert talk.report("again")["cells"][0]["context_exhausted"] == 1


@pytest.mark.parametrize("style", ["vllm", "anthropic"])
def test_a_full_context_in_other_words(talk: Conversations, style: str) -> None:
    with LlmServer(by_turn([answer(""), context_length(style)])) as server:
        fields = {**ANTHROPIC, "api_base": server.root} if style == "anthropic" else {}
        if fields and find_spec("litellm") is None:
            pytest.skip("needs litellm")
        # litellm is not imported here: it replaces parts of the library that other tests look packages up with.
        _ended_with_a_full_context(talk.run(Entry(server, fields=fields), turns=4, apart=bool(fields)))
    assert len(server.seen) == 2


def _ended_with_a_full_context(result: pytest.RunResult) -> None:
    result.assert_outcomes(failed=1, skipped=3, deselected=116)
    result.stdout.fnmatch_lines(
        ["Remarks (calls): trajectories ended by a full context 1.", "skipped 3: the conversation no longer fits*"]
    )


def test_a_turn_without_an_answer_is_excluded_and_made_good_later(talk: Conversations) -> None:
    crowded = threading.Event()

    def script(seen: Seen) -> Step:
        return rate_limited("7200") if seen.turn == 1 and crowded.is_set() else refused(seen.turn)

    with LlmServer(script) as server:
        crowded.set()
        result = talk.run(Entry(server), turns=3)
        result.assert_outcomes(failed=1, errors=2, deselected=87)
        result.stdout.fnmatch_lines(
            [
                "*infrastructure fault model_rate_limited: scripted: *the next attempt would be 72?? s away*",
                "Infrastructure: 2 turns could not be judged and left out of N.",
            ]
        )
        assert talk.report()["cells"][0]["limits"][-1]["correct"]["turns"] == 1
        assert talk.judged_again() == table(result)
        crowded.clear()
        talk.run(Entry(server), turns=3).assert_outcomes(failed=3, deselected=87)
    # In the first session turn 2 is not asked for: the provider said when to come back.
    assert [seen.turn for seen in server.seen] == [0, 1, 1, 2]
    assert not list((talk.path / "generated" / "talk" / "faults").iterdir())


def test_an_answer_that_reached_the_limit_and_one_that_was_withheld_are_turns(talk: Conversations) -> None:
    steps = [Answer(text="```cuda\nhalf", finish="length"), Answer(text="", finish="content_filter")]
    with LlmServer(by_turn(steps)) as server:
        result = talk.run(Entry(server), turns=2)
    result.assert_outcomes(failed=2, deselected=58)
    assert talk.outcomes() == ["extraction_error"] * 2
    report = talk.report()
    assert [row["call"]["ended"] for row in report["turns"]] == ["output_limit", "filtered"]
    assert (report["calls"]["truncated"], report["calls"]["filtered"]) == (1, 1)
    records = talk.records()
    assert records[0].exchange is not None
    assert records[0].exchange.reply is not None
    assert records[0].exchange.reply.usage == Usage(
        input_tokens=1000, cached_input_tokens=0, output_tokens=100, reasoning_tokens=0
    )
