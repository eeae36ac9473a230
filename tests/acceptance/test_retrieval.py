"""``--retrieval`` and ``--expert-guidance`` in whole sessions."""

from __future__ import annotations

from pathlib import Path

import bm25s  # noqa: F401 - pytester forgets what its sessions import, and numpy must not come twice
import pytest

from ptxbench.adapt.model import Rationale, write_lines
from ptxbench.agent import RunStore
from tests.acceptance.conversations import REFUSED, Conversations, Entry, by_turn, refused
from tests.support.fixit_parts import make_failure, make_rationale
from tests.support.llm_script import Step
from tests.support.llm_server import LlmServer

ANSWERS: list[Step] = [refused(0), refused(1)]


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


def noted(number: int, note: str, extra: str = "", definition: str = "") -> Rationale:
    """A repair whose failed kernel is like the answers'; ``number`` keeps it from being one of them."""
    failure = make_failure(REFUSED.format(number=number) + extra, turn=number % 8)
    if definition:
        failure = failure.model_copy(update={"definition": definition})
    return make_rationale(failure, f"// repaired {number}\n", note)


def write_notes(folder: Path, *rationales: Rationale) -> list[str]:
    write_lines(rationales, folder / "notes" / "rationales.jsonl")
    return ["--retrieval-from=notes", "--variants=1"]


def test_notes_on_failures_like_this_one_and_of_nothing_else(talk: Conversations) -> None:
    found = noted(100, "I declare what I use.")
    own = noted(0, "I know this very kernel.")
    other = noted(101, "I am of another operation.", definition="mha_with_lse_d128")
    unlike = make_rationale(make_failure("// nothing\n", turn=6), "// x\n", "I share no name.")
    more = write_notes(talk.path, found, own, other, unlike)
    with LlmServer(by_turn(ANSWERS)) as server:
        talk.run(Entry(server), more=[*more, "--retrieval=notes"], turns=2)
        first, second = server.seen
    assert len(first.messages) == 2
    told = second.messages[-1][1]
    assert told.startswith("Your kernel does not compile")
    assert told.endswith("Note 1:\nI declare what I use.\n")
    assert "Notes from earlier repairs" in told
    for absent in ("this very kernel", "another operation", "no name", "// repaired"):
        assert absent not in told
    for record in talk.records():
        assert record.exchange is not None
        assert "retrieval of notes 2, " in record.exchange.prompt.template

    dry = talk.run(Entry(server), more=[*more, "--retrieval=notes", "--dry-run"], turns=2, run="dry")
    plain = talk.run(Entry(server), more=["--dry-run"], turns=2, run="dry")
    assert _feedback_tokens(dry) > _feedback_tokens(plain) == "1.0k"

    # The run is one of these notes: another mode, other notes, or none at all are another run.
    with LlmServer(by_turn(ANSWERS)) as server:
        for options in ([*more, "--retrieval=notes+kernel"], []):
            refusal = talk.run(Entry(server), more=options, turns=3)
            assert refusal.ret == pytest.ExitCode.USAGE_ERROR
            refusal.stderr.fnmatch_lines(["*expected the prompts of scripted*retrieval*cannot be mixed*"])
        more = write_notes(talk.path, found)
        refusal = talk.run(Entry(server), more=[*more, "--retrieval=notes"], turns=3)
        refusal.stderr.fnmatch_lines(["*retrieval.corpus_sha256*cannot be mixed*"])
        assert server.seen == []


def _feedback_tokens(result: pytest.RunResult) -> str:
    return next(line for line in result.outlines if " of feedback" in line).split(" of feedback")[0].split()[-1]


def test_with_the_repaired_kernels_and_expert_guidance(talk: Conversations) -> None:
    more = [*write_notes(talk.path, noted(100, "I declare what I use.")), "--retrieval=notes+kernel"]
    with LlmServer(by_turn(ANSWERS)) as server:
        talk.run(Entry(server), more=[*more, "--expert-guidance"], turns=2)
        first, second = server.seen
    assert "## Expert guidance" in first.messages[0][1]
    assert second.messages[-1][1].endswith("~~~~cuda\n// repaired 100\n~~~~\n")
    identity = RunStore.read(talk.path / "generated" / "talk").identity
    assert identity.models["scripted"].conditions["expert_guidance"] is True


def test_the_two_options_go_together(talk: Conversations) -> None:
    with LlmServer(by_turn(ANSWERS)) as server:
        for more, found in ((["--retrieval=notes"], "--retrieval notes"), (["--retrieval-from=x"], "--retrieval-from")):
            result = talk.run(Entry(server), more=more)
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            result.stderr.fnmatch_lines(
                [f"*expected --retrieval notes|notes+kernel and *together, found {found} alone*"]
            )
        result = talk.run(Entry(server), more=["--retrieval=notes", "--retrieval-from=nowhere"])
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--retrieval-from *nowhere: expected a file of rationales*"])
        assert server.seen == []
