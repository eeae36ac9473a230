"""Resuming a conversation: as the same experiment, or not at all. What two sessions on one run may do."""

from __future__ import annotations

import signal

import pytest

from ptxbench.records import Message, prompt_sha256
from tests.acceptance.conversations import TRAJECTORY, Conversations, Entry, answer, by_turn, refused, wait_for
from tests.acceptance.parts import started
from tests.support.llm_script import Failure, Hang
from tests.support.llm_server import LlmServer


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


def assert_refused(result: pytest.RunResult, *words: str) -> None:
    """One usage error with these words."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert [word for word in words if word not in text] == [], text
    assert text.count("ERROR: ") == 1
    assert "Traceback" not in text + result.stdout.str()


def test_another_model_under_the_same_name_is_refused(talk: Conversations) -> None:
    with LlmServer(lambda seen: answer("")) as server, LlmServer(lambda seen: answer("")) as elsewhere:
        talk.run(Entry(server), turns=1)
        other = talk.run(Entry(server, fields={"model": "quite-another"}), turns=2)
        assert_refused(other, "--run ", "the model scripted", 'model "scripted-1"', 'found model "quite-another"')
        moved = talk.run(Entry(elsewhere), turns=2)
        assert_refused(moved, f'api_base "{server.url}"', f'found api_base "{elsewhere.url}"', "another --run")
        hotter = talk.run(Entry(server, fields={"temperature": 0.5}), turns=2, more=["-n", "1"], apart=True)
        assert_refused(hotter, "temperature (not sent)", "found temperature 0.5")
        dry = talk.run(Entry(server, fields={"model": "quite-another"}), turns=2, more=["--dry-run"])
        assert dry.ret == 0
        dry.stdout.fnmatch_lines(["missing: --run *quite-another*"])
        # Prices and names of servers' keys are no part of the experiment.
        talk.run(Entry(server, fields={"prices": None}), turns=2).assert_outcomes(failed=2, deselected=58)
        assert [len(server.seen), len(elsewhere.seen)] == [2, 0]
        assert talk.store().identity.models["scripted"].sent["model"] == "scripted-1"


def test_another_level_of_knowledge_is_refused(talk: Conversations) -> None:
    with LlmServer(lambda seen: answer("")) as server:
        talk.run(Entry(server), turns=1, more=["--knowledge=params"])
        forgot = talk.run(Entry(server), turns=2)
        assert_refused(forgot, "expected --knowledge params", "found full", "resume with --knowledge params")
        talk.run(Entry(server), turns=2, more=["--knowledge=params"]).assert_outcomes(failed=2, deselected=58)
        assert len(server.seen) == 2
    first, second = (record.exchange for record in talk.records())
    assert first is not None
    assert second is not None
    assert first.prompt == second.prompt
    assert first.prompt.level == "params"


def test_a_turn_that_is_done_again_leaves_a_conversation_that_was_had(talk: Conversations) -> None:
    count = iter(range(7000, 8000))
    with LlmServer(lambda seen: refused(next(count))) as server:
        talk.run(Entry(server), turns=3)
        (talk.path / "generated" / "talk" / "turns" / TRAJECTORY / "turn1.json").write_text("{")
        result = talk.run(Entry(server), turns=4)
        assert len(server.seen) == 3 + 3
    result.stdout.fnmatch_lines(["*turn2.json: it answers another conversation*moved to*done again"])
    result.stdout.fnmatch_lines(["Beside these calls the run holds 1 reply that no turn is made of, USD 0.0030*"])
    messages: list[Message] = []
    for record in talk.records():
        assert record.exchange is not None
        assert record.exchange.reply is not None
        messages += record.exchange.added
        assert record.exchange.prompt_sha256 == prompt_sha256(messages), record.key
        messages.append(Message(role="assistant", content=record.exchange.reply.text))


def test_a_session_with_a_budget_has_the_run_alone(talk: Conversations) -> None:
    with LlmServer(Hang()) as server:
        arguments = talk.arguments(Entry(server), turns=2)
        with started(talk.path, *arguments, "--budget-tokens=5000") as process:
            wait_for(server, 1)
            for more in ((), ("--budget-tokens=5000",)):
                second = talk.run(Entry(server), turns=2, more=more)
                assert_refused(second, "expected to be the only session that asks models", "--run ")
            # Who asks nobody spends nothing.
            own = ["-p", "no:cacheprovider", "--profiler=replay", "-m", "h100 and gemm", "--run=talk"]
            assert talk.checkout.runpytest_inprocess(*own).ret == 0
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert len(server.seen) == 1
    with (
        LlmServer(Hang()) as server,
        started(talk.path, *talk.arguments(Entry(server), turns=2, run="free")) as process,
    ):
        wait_for(server, 1)
        second = talk.run(Entry(server), turns=2, run="free", more=["--budget-usd=1"])
        assert_refused(second, "found another session that asks models")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_replay_of_a_run_that_lacks_a_turn_says_so(talk: Conversations, lost: int) -> None:
    with LlmServer(by_turn([answer(""), refused(1), answer("")])) as server:
        talk.run(Entry(server), turns=3)
    (talk.path / "generated" / "talk" / "turns" / TRAJECTORY / f"turn{lost}.json").unlink()
    again = talk.checkout.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--profiler=replay", "-m", "h100 and gemm", "-k", "test_correct"),
        *("--model=replay:talk", "--run=again", "--ptx-json=again.json"),
    )
    again.assert_outcomes(failed=2, errors=1, deselected=87)
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines([f"*turn_missing*expected turn {lost} of {TRAJECTORY} in the run talk, found none*"])
    assert talk.report("again")["cells"][0]["excluded"] == 1


@pytest.mark.parametrize("field", ["model", "id"])
def test_half_a_surrogate_pair_in_any_field_loses_no_reply(talk: Conversations, field: str) -> None:
    body = {
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "none"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }
    with LlmServer(lambda seen: Failure(200, body | {field: "\ud800"})) as server:
        result = talk.run(Entry(server), turns=2, more=["--trajectories=2"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    result.assert_outcomes(failed=4, deselected=116)


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_an_error_in_any_characters_is_an_infrastructure_fault(talk: Conversations, workers: tuple[str, ...]) -> None:
    message = f"bad \ud800 \x1b[31mthing '{talk.path}/models.yaml'"
    with LlmServer(Failure(400, {"error": {"message": message}})) as server:
        result = talk.run(Entry(server), turns=1, more=["--junitxml=talk.xml", *workers], apart=bool(workers))
    result.stdout.fnmatch_lines(["*infrastructure fault model_bad_request*"])
    assert "\x1b" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    (fault,) = (talk.path / "generated" / "talk" / "faults").iterdir()
    for kept in (fault, talk.path / "talk.json"):
        if kept.exists():
            assert str(talk.path) not in kept.read_text()


def test_errors_of_a_models_file_point_to_the_page_about_models(talk: Conversations) -> None:
    (talk.path / "broken.yaml").write_text("models:\n  mine: {provider: openai\n")
    result = talk.checkout.runpytest_inprocess("--collect-only", "-q", "--model=mine", "--models-file=broken.yaml")
    result.stdout.fnmatch_lines(["*broken.yaml:*docs/models.md*"])
    assert "docs/cases.md" not in result.stdout.str()


def test_other_tests_whose_ids_look_like_turns_are_not_ours(talk: Conversations) -> None:
    (talk.path / "test_other.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('x', ['reference-gemm_n7168_k5120-h100-v0-t0-turn0'])\n"
        "def test_it(x): ...\n"
    )
    result = talk.checkout.runpytest_inprocess("-p", "no:cacheprovider", "test_other.py", "--ptx-json=other.json")
    result.assert_outcomes(passed=1)
    assert "PTXBench" not in result.stdout.str()
    assert not (talk.path / "other.json").exists()
    assert not list((talk.path / "generated").glob("run-*"))
