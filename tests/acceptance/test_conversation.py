"""Trajectories of a language model over real HTTP, with the real compiler, judged by stored evidence."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ptxbench.agent import RunStore
from ptxbench.records import Message, Usage, prompt_sha256
from tests.acceptance.conversations import (
    CASE,
    KEY,
    KEY_VARIABLE,
    OUTCOMES,
    Conversations,
    Entry,
    answer,
    by_turn,
    files_with,
    refused,
)
from tests.acceptance.parts import SOURCE
from tests.support.llm_script import Failure, cut_off, kernel, unauthorized
from tests.support.llm_server import LlmServer


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


def test_eight_turns_with_every_outcome_and_their_replay_without_a_key(
    talk: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [answer(name, cached_tokens=200, reasoning_tokens=10) for name in OUTCOMES]
    with LlmServer(by_turn(steps)) as server:
        result = talk.run(Entry(server), more=["--junitxml=talk.xml"], apart=True)
    result.assert_outcomes(passed=1, failed=7, deselected=232)
    assert talk.outcomes() == list(OUTCOMES.values())
    result.stdout.fnmatch_lines(
        [
            f"Calls: {CASE}: 8 model calls, 8.0k input (1.6k cached) and 800 output*",
            "Total: 8 turns, 1 correct; 8 model calls, *USD 0.0216*",
            "Run: generated/talk (--run=talk resumes it)",
        ]
    )
    _check_whole_prompts(talk, server)
    _check_junit(talk.path / "talk.xml")
    report = talk.report()
    assert report["calls"]["calls"] == 8
    assert report["calls"]["cost_usd"] == pytest.approx(8 * (800 * 2.0 + 200 * 0.5 + 100 * 10.0) / 1e6)
    assert report["cells"][0]["calls"] == report["calls"]

    # Nothing that leads anywhere: no key, no server, no models file, no evidence but the run's own; and another folder,
    # as on another machine.
    monkeypatch.delenv(KEY_VARIABLE)
    for gone in ("models.yaml", "generated/reference", "tests/evidence"):
        (talk.path / gone).unlink()
    moved = talk.path / "elsewhere" / "talk"
    moved.parent.mkdir()
    (talk.path / "generated" / "talk").rename(moved)
    again = talk.checkout.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--profiler=replay", "-m", "h100 and gemm", "-k", "test_correct"),
        *("--model=replay:elsewhere/talk", "--run=again", "--ptx-json=again.json"),
    )
    again.assert_outcomes(passed=1, failed=7, deselected=232)
    assert _without_names(talk.report("again")) == _without_names(report)
    for before, after in zip(RunStore.read(moved).turns(), talk.store("again").turns(), strict=True):
        assert after.candidate == before.candidate
        assert (after.record.exchange, after.record.follows) == (before.record.exchange, before.record.follows)


def _check_whole_prompts(talk: Conversations, server: LlmServer) -> None:
    """The records give back, word by word, what the server was sent."""
    messages: list[Message] = []
    for record, seen in zip(talk.records(), server.seen, strict=True):
        exchange = record.exchange
        assert exchange is not None
        assert exchange.reply is not None
        messages += exchange.added
        assert seen.messages == [(message.role, message.content) for message in messages]
        assert exchange.prompt_sha256 == prompt_sha256(messages)
        messages.append(Message(role="assistant", content=exchange.reply.text))
        assert exchange.sent["model"] == "scripted-1"
        assert seen.body["model"] == "scripted-1"
        assert seen.key == KEY
        assert exchange.reply.usage == Usage(
            input_tokens=1000, cached_input_tokens=200, output_tokens=100, reasoning_tokens=10
        )


def _check_junit(path: Path) -> None:
    cases = ElementTree.parse(path).getroot().findall(".//testcase")
    properties = [
        {item.get("name"): item.get("value") for item in case.findall("./properties/property")} for case in cases
    ]
    assert [found["ptxbench.outcome"] for found in properties] == list(OUTCOMES.values())
    for found in properties:
        assert found["ptxbench.input_tokens"] == "1000"
        assert found["ptxbench.answered_by"] == "scripted-1"
        assert float(found["ptxbench.cost_usd"] or "nan") == pytest.approx(0.0027)


def _without_names(report: dict[str, object]) -> str:
    """A report whose turns have the same names whatever model they are of, and no word of where they came from."""
    text = json.dumps(report).replace("replay.talk", "scripted")
    return text.replace('"origin": "model"', '"origin": "replay"')


def test_the_key_is_nowhere(talk: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.acceptance.conversations.KEY_VARIABLE", "SOME_OTHER_NAME")
    monkeypatch.setenv("SOME_OTHER_NAME", KEY)
    with LlmServer(by_turn([refused(0), refused(1)])) as server:
        good = talk.run(Entry(server), turns=2, run="good", more=["--junitxml=good.xml", "-v"])
        assert server.seen[0].key == KEY
    with LlmServer(unauthorized(KEY)) as server:
        bad = talk.run(Entry(server), turns=2, run="bad", more=["--junitxml=bad.xml", "-v", "--trajectories=3"])
        # Whoever is told so once asks no second time, in whatever trajectory.
        assert len(server.seen) <= 3
    bad.assert_outcomes(errors=6, deselected=174)
    bad.stdout.fnmatch_lines(
        ["*infrastructure fault model_authentication: scripted: *", "*6 turns could not be judged*"]
    )
    for result in (good, bad):
        assert KEY not in result.stdout.str() + result.stderr.str()
        assert "Traceback" not in result.stdout.str()
    assert files_with(talk.path, KEY) == []
    assert files_with(talk.path / "generated" / "good", str(talk.path)) == []
    assert len(list((talk.path / "generated" / "bad" / "faults").iterdir())) == 6


def test_two_models_in_one_run(talk: Conversations) -> None:
    with LlmServer(by_turn([refused(0), refused(1)])) as one, LlmServer(by_turn([cut_off(), answer("")])) as two:
        result = talk.run(Entry(one, "first"), Entry(two, "second", {"prices": None}), turns=2)
    result.assert_outcomes(failed=4, deselected=116)
    assert talk.outcomes() == ["compile_error"] * 2 + ["extraction_error"] * 2
    result.stdout.fnmatch_lines(
        [
            "first on h100",
            "second on h100",
            f"Calls: {CASE}: 2 model calls, *USD ?,*",
            "Remarks (calls): replies cut off at the output limit 1.",
            "Total: 4 turns, 0 correct; 4 model calls, *USD 0.0060+, *",
        ]
    )
    assert {seen.body["model"] for seen in one.seen} == {"first-1"}
    assert {seen.body["model"] for seen in two.seen} == {"second-1"}


def test_workers_share_the_models(talk: Conversations) -> None:
    with LlmServer(by_turn([refused(0), refused(1)])) as server:
        more = ["-n", "2", "--trajectories=2", "--junitxml=talk.xml"]
        result = talk.run(Entry(server), turns=2, more=more, apart=True)
        assert len(server.seen) == 4
        result.assert_outcomes(failed=4)
        alone = talk.run(Entry(server), turns=2, more=["--trajectories=2"], run="alone")
        alone.assert_outcomes(failed=4, deselected=116)
    assert talk.report() == talk.report("alone")
    assert "ptxbench.progress" not in (talk.path / "talk.xml").read_text()


def test_a_key_that_a_server_echoes_is_nowhere(talk: Conversations) -> None:
    choice = {"index": 0, "message": {"content": f"Authorization: Bearer {KEY}"}, "finish_reason": "stop"}
    body = {"id": "x", "model": KEY, "choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    with LlmServer(Failure(200, body)) as server:
        talk.run(Entry(server), turns=1, more=["--junitxml=talk.xml"])
    found = [path for path in talk.path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in found if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_missing_key_is_one_usage_error(
    talk: Conversations, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    with LlmServer([]) as server:
        result = talk.run(Entry(server), more=workers, apart=bool(workers))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: model scripted: expected its API key in the environment variable {KEY_VARIABLE}*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    assert server.seen == []
    assert not (talk.path / "generated" / "talk" / "turns").exists()


def test_collecting_needs_no_key(talk: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    result = talk.checkout.runpytest_inprocess("--collect-only", "-q", "--model=claude", "-m", "h100 and gemm")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*test_correct*claude-{CASE}-h100-v0-t0-turn7*"])


def test_the_environment_may_name_the_models_file(talk: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    (talk.path / "mine.yaml").write_text("models:\n  mine: {provider: exchange, folder: mail}\n")
    monkeypatch.setenv("PTXBENCH_MODELS", str(talk.path / "mine.yaml"))
    result = talk.checkout.runpytest_inprocess("--collect-only", "-q", "--model=mine", "-m", "h100 and gemm")
    result.stdout.fnmatch_lines([f"*test_correct*mine-{CASE}-h100-v0-t0-turn0*"])
    monkeypatch.setenv("PTXBENCH_MODELS", str(talk.path / "absent.yaml"))
    result = talk.checkout.runpytest_inprocess("--collect-only", "-q", "--model=mine")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*absent.yaml*"])


def test_less_knowledge_is_a_shorter_prompt(talk: Conversations) -> None:
    sizes = []
    for level in ("params", "templates", "full"):
        with LlmServer(by_turn([answer("")])) as server:
            talk.run(Entry(server), turns=1, run=level, more=[f"--knowledge={level}"])
        sizes.append(len(server.seen[0].messages[0][1]))
        (record,) = talk.records(level)
        assert record.exchange is not None
        assert record.exchange.prompt.level == level
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_a_turn_without_evidence_waits_for_a_device(talk: Conversations) -> None:
    # Made up for other tests, whose checkouts have evidence of it.
    with LlmServer(kernel(SOURCE)) as server:
        result = talk.run(Entry(server), turns=3)
    assert len(server.seen) == 1
    result.assert_outcomes(skipped=3, deselected=87)
    result.stdout.fnmatch_lines(["skipped 2: turn 0 was not measured, so there is no feedback*"])
