"""Conversations that are killed, stopped, or out of money, and what it would have cost to begin."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ptxbench.agent.rejudging import rejudge
from tests.acceptance.conversations import (
    CASE,
    KEY_VARIABLE,
    MODEL,
    Conversations,
    Entry,
    answer,
    by_turn,
    refused,
    table,
    wait_for,
)
from tests.acceptance.parts import started
from tests.acceptance.test_gates import gates
from tests.support.llm_script import Hang, Step
from tests.support.llm_server import LlmServer, Seen

TURNS, TRAJECTORIES = 4, 3
MORE = (f"--trajectories={TRAJECTORIES}", f"--concurrency={TRAJECTORIES}")
STEPS = [answer(""), refused(1), answer("screened"), refused(3)]


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


def test_a_killed_run_goes_on_to_the_report_of_an_undisturbed_one(talk: Conversations) -> None:
    planned = TURNS * TRAJECTORIES
    with LlmServer(by_turn(STEPS)) as server:
        arguments = [*talk.arguments(Entry(server), turns=TURNS), *MORE]
        for requests in (2, 5, 9):
            with started(talk.path, *arguments) as process:
                wait_for(server, requests)
                os.killpg(process.pid, signal.SIGKILL)
        result = talk.run(Entry(server), turns=TURNS, more=MORE)
        result.assert_outcomes(failed=planned, deselected=planned * 29)
        # What was lost at a kill is the call in progress of each trajectory at most.
        assert planned <= len(server.seen) <= planned + 3 * TRAJECTORIES
        folder = talk.path / "generated" / "talk"
        assert not list((folder / "replies").glob("*.json"))
        assert not (folder / "aside").exists()

        talk.run(Entry(server), turns=TURNS, run="whole", more=MORE)
        talk.run(Entry(server), turns=TURNS, run="whole", more=MORE)
    assert talk.report() == talk.report("whole")
    assert talk.report()["calls"]["calls"] == planned


def test_a_reply_that_came_before_the_kill_is_not_paid_twice(talk: Conversations) -> None:
    """The compiler is replaced by one that never ends, so the kill falls between reply and verdict."""
    slow = talk.path / "slow"
    slow.mkdir()
    (slow / "nvcc").write_text("#!/bin/sh\nexec sleep 60\n")
    (slow / "nvcc").chmod(0o755)
    path = os.environ["PATH"]
    with LlmServer(refused(7)) as server:
        arguments = talk.arguments(Entry(server), turns=1)
        os.environ["PATH"] = f"{slow}{os.pathsep}{path}"
        try:
            with started(talk.path, *arguments) as process:
                reply = talk.path / "generated" / "talk" / "replies" / f"{MODEL}-{CASE}-h100-v0-t0-turn0.json"
                deadline = time.monotonic() + 60
                while not reply.exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                os.killpg(process.pid, signal.SIGKILL)
        finally:
            os.environ["PATH"] = path
        talk.checkout.runpytest_inprocess(*arguments).assert_outcomes(failed=1, deselected=29)
    assert len(server.seen) == 1
    assert not reply.exists()
    assert talk.outcomes() == ["compile_error"]


def test_ctrl_c_gives_up_calls_loses_nothing_and_says_how_to_go_on(talk: Conversations) -> None:
    pausing, steps = threading.Event(), by_turn(STEPS)
    pausing.set()

    def script(seen: Seen) -> Step:
        if pausing.is_set():
            return refused(0) if seen.turn == 0 else Hang()
        return steps(seen)

    with LlmServer(script) as server:
        arguments = [*talk.arguments(Entry(server), turns=TURNS), *MORE]
        with started(talk.path, *arguments) as process:
            wait_for(server, 2 * TRAJECTORIES)
            signalled = time.monotonic()
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=60)[0].decode()
        took = time.monotonic() - signalled
        _check_stop(talk, process.returncode, output)
        pausing.clear()
        asked = len(server.seen)
        talk.run(Entry(server), turns=TURNS, more=MORE).assert_outcomes(failed=12, deselected=348)
        assert len(server.seen) - asked == (TURNS - 1) * TRAJECTORIES
    assert took < 20


def _check_stop(talk: Conversations, returncode: int, output: str) -> None:
    assert returncode in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR), output
    command = next(line for line in output.splitlines() if line.startswith("Stopped; nothing that finished is lost."))
    assert command.endswith("--run=talk")
    assert command.count("--run") == 1
    assert " pytest -p no:cacheprovider " in command
    assert talk.outcomes() == ["compile_error"] * TRAJECTORIES
    assert not (talk.path / "generated" / "talk" / "faults").exists()


def test_a_stop_before_the_first_turn_says_how_to_go_on_too(talk: Conversations) -> None:
    """Also with a worker, whose turns the controlling process does not plan."""
    (talk.path / "talk.json").write_text("of an older session")
    with LlmServer(Hang()) as server, started(talk.path, *talk.arguments(Entry(server), turns=1), "-n1") as process:
        wait_for(server, 1)
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0].decode()
    assert "Continue with: pytest -p no:cacheprovider" in output
    assert (talk.report()["turns"], talk.report()["cells"]) == ([], [])


def test_a_budget_is_of_all_sessions_together_and_leaves_a_partial_report(talk: Conversations) -> None:
    """A call costs 0.003 dollars: four of them reach the limit."""
    budget = "--budget-usd=0.010"
    with LlmServer(by_turn(STEPS)) as server:
        more = ("--trajectories=3", "--concurrency=1")
        result = talk.run(Entry(server), turns=3, more=[*more, budget])
        assert len(server.seen) == 4
        again = talk.run(Entry(server), turns=3, more=[*more, budget])
        assert len(server.seen) == 4
        for found in (result, again):
            found.assert_outcomes(failed=4, skipped=5, deselected=261)
            found.stdout.fnmatch_lines(
                [
                    "Partial: the budget was spent; 5 turns were not asked for and are left out of N.",
                    "skipped 5: --budget-usd 0.01 is reached, so the model is asked for no further turn*",
                ]
            )
        assert talk.judged_again() == table(again)
        # Named twice, the run is still one.
        assert len(rejudge(talk.path, ["talk", "generated/talk"]).ends) == 2
        assert gates(again) == []
        gated = talk.run(Entry(server), turns=3, more=[*more, budget, "--gate=correct <= 50%", "--gate=correct == 0"])
        assert gated.ret == 1
        assert gates(gated) == [
            "gate UNKNOWN  correct <= 50%: 0.0% (0 of 9), margin -5.6 points "
            "(5 unknown turns, 5 of them not asked for: up to 55.6%)",
            "gate UNKNOWN  correct == 0: 0.0% (0 of 9), margin -55.6 points "
            "(5 unknown turns, 5 of them not asked for: up to 55.6%)",
        ]
        cell = talk.report()["cells"][0]
        assert (cell["unasked"], cell["limits"][-1]["correct"]["turns"]) == (5, 4)
        talk.run(Entry(server), turns=3, more=[*more, "--budget-usd=0.020"])
        assert len(server.seen) == 7
        talk.run(Entry(server), turns=3, more=more).assert_outcomes(failed=9, deselected=261)
    assert len(server.seen) == 9
    assert talk.report()["cells"][0]["unasked"] == 0
    assert list(talk.store().ends()) == []


def test_workers_have_equal_shares_of_what_is_left(talk: Conversations) -> None:
    with LlmServer(by_turn(STEPS)) as server:
        talk.run(Entry(server), turns=2, more=["--trajectories=1"])
        assert len(server.seen) == 2
        # Left: 4,400 of 6,600 tokens, two calls for each worker, of its three or two trajectories.
        more = ["--trajectories=5", "--concurrency=1", "-n", "2", "--budget-tokens=6600"]
        result = talk.run(Entry(server), turns=2, more=more, apart=True)
        assert len(server.seen) == 6
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["skipped"]) == (6, 4)
    result.stdout.fnmatch_lines(["skipped 4: this worker's share of --budget-tokens 6600 is reached*"])


def test_a_budget_in_dollars_wants_prices(talk: Conversations) -> None:
    with LlmServer([]) as server:
        result = talk.run(Entry(server, fields={"prices": None}), more=["--budget-usd=5"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --budget-usd: expected prices of every language model, found none of scripted*"]
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_dry_run_says_what_would_run_and_does_nothing(
    talk: Conversations, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    monkeypatch.setenv("PATH", "/nonexistent")
    with LlmServer([]) as server:
        more = ("--dry-run", "--variants=all", "--trajectories=4", "--model=reference", *workers)
        result = talk.run(Entry(server), more=more, apart=bool(workers))
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            f"{MODEL} on h100: 1 cases, 3 prompts (case x variant), 12 trajectories, at most 96 turns",
            "  at most 96 calls: about * input tokens (up to * of them cached), 864k to 3.07M output tokens",
            "  cost: USD *.* to *.*",
            f"  missing: model {MODEL}: expected its API key in the environment variable {KEY_VARIABLE}*",
            "reference on h100: *",
            "  no model call: its sources exist already",
        ]
    )
    assert not (talk.path / "generated" / "talk").exists()
    assert not (talk.path / "talk.json").exists()
    assert server.seen == []


def test_a_dry_run_on_a_run_that_has_turns_measures_and_counts_what_is_left(talk: Conversations) -> None:
    with LlmServer(by_turn([refused(0, output_tokens=5000), refused(1, output_tokens=7000)])) as server:
        talk.run(Entry(server), turns=2)
        result = talk.run(Entry(server), turns=4, more=["--dry-run"])
    assert result.ret == 0
    assert len(server.seen) == 2
    result.stdout.fnmatch_lines(
        [
            f"{MODEL} on h100: 1 cases, 1 prompts (case x variant), 1 trajectories, at most 4 turns, 2 of them done",
            "  at most 2 calls: *, 12k to 14k output tokens",
            "*by averages of 2 turns of the run",
            "Run: talk",
        ]
    )
    result.stdout.no_fnmatch_line("*missing:*")


def test_a_dry_run_says_what_would_stop_the_run(talk: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (talk.path / "generated" / "file").write_text("no folder")
    (talk.path / "generated" / "broken").mkdir()
    (talk.path / "generated" / "broken" / "run.json").write_text("{")
    more = ["--dry-run", "--budget-usd=1", "--profiler=local"]
    with LlmServer([]) as server:
        result = talk.run(Entry(server, fields={"prices": None}), run="file", more=more)
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            [
                "  missing: --budget-usd: expected prices of every language model*",
                "missing: --run *generated/file: expected a folder, found a file; *",
                "missing: --profiler local: expected a GPU, found none*",
            ]
        )
        broken = talk.run(Entry(server), run="broken", more=["--dry-run"])
        assert broken.ret == 0
        broken.stdout.fnmatch_lines(["missing: *run.json: expected the identity of a run*"])
        broken.stdout.no_fnmatch_line("*missing: --budget*")


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_turns_that_were_not_selected_are_out_of_n(talk: Conversations, workers: tuple[str, ...]) -> None:
    """Turn 2 needs those before it, of which the session says nothing."""
    with LlmServer(by_turn(STEPS)) as server:
        more = ("--trajectories=2", "--gate=correct == 0", *workers)
        result = talk.run(Entry(server), turns=4, check="test_correct and turn2", more=more, apart=bool(workers))
    assert len(server.seen) == 6
    (cell,) = talk.report()["cells"]
    assert (cell["unselected"], cell["limits"][-1]["limit"], cell["limits"][-1]["correct"]["turns"]) == (4, 3, 2)
    assert gates(result) == [
        "gate MET      correct == 0: 0.0% (0 of 2), margin +0.0 points (4 turns were not selected)"
    ]
    assert result.ret == 0


def test_a_budget_that_was_spent_before_the_selected_turns_leaves_them_out_of_n(talk: Conversations) -> None:
    with LlmServer(by_turn(STEPS)) as server:
        more = ("--trajectories=2", "--concurrency=1", "--budget-usd=0.010", "--gate=correct == 0")
        result = talk.run(Entry(server), turns=3, check="test_correct and (turn0 or turn2)", more=more)
    assert len(server.seen) == 4
    (cell,) = talk.report()["cells"]
    assert (cell["unselected"], cell["unasked"], cell["limits"][-1]["correct"]["turns"]) == (2, 1, 3)
    assert result.ret == 1
