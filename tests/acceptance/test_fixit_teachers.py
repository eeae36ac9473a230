"""Both teachers over real HTTP, with the real compiler, repairs judged by stored evidence."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ptxbench.adapt.model import Correct, Failure, Rationale, Repair, read_lines, write_lines
from ptxbench.cli import main
from ptxbench.records import Candidate
from tests.acceptance.conversations import answer, refused
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.support.fixit_parts import FEEDBACK, make_repair, wrong
from tests.support.llm_script import Answer, Step, context_length, unauthorized
from tests.support.llm_server import LlmServer, Seen

THOUGHTS = (
    "The feedback says that my result is wrong, so I go through the loop over K first. I load both tiles, I wait for "
    "them, I multiply; what I do not do is scale. The factor stands behind the loop, and I see that it is not one. "
    "I take it out, and I check that the store, which was right, stays as it is. Nothing else has to change, since the "
    "bounds of the grid and the layout of the tiles follow from the shapes that I was set. I also think of the first "
    "tile: the accumulators start at zero there, so nothing of an earlier call can be in them, and of the last one, "
    "whose rows all exist, since M is a multiple of my tile. What could still go wrong is the rounding at the end, but "
    "it is that of every BF16 kernel: I convert each sum once, in the epilogue, and I store it. So the factor alone "
    "explains why all elements are off by the same proportion, and with it gone the sums are those of the definition."
)


class Bench:
    """A folder with a models file, from which commands are run."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def models(self, server: LlmServer, **fields: Any) -> str:
        entry = {"provider": "openai", "model": "t-1", "api_base": server.url, **fields}
        file = self.folder / "models.yaml"
        file.write_text(f"models:\n  teacher: {json.dumps(entry)}\n")
        return f"--models-file={file}"

    def fixit(self, *arguments: object) -> tuple[int, str]:
        """Exit status, and everything printed."""
        status = main(["fixit", *map(str, arguments)])
        output = self.capsys.readouterr()
        return status, output.out + output.err


@pytest.fixture
def bench(
    tmp_path: Path, build_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setenv("PTXBENCH_CACHE", str(build_cache))
    monkeypatch.chdir(ROOT)
    return Bench(tmp_path, capsys)


def failures_file(bench: Bench, *failures: Failure) -> Path:
    path = bench.folder / "failures.jsonl"
    write_lines(failures, path)
    return path


Scripts = dict[str, list[Step]]


def by_kernel(scripts: Scripts) -> Callable[[Seen], Step]:
    """Answers by the failed kernel that the conversation begins with, and by the teacher's turn."""

    def choose(seen: Seen) -> Step:
        failed = seen.messages[2][1]
        script = next(steps for name, steps in scripts.items() if load(name).rstrip() in failed)
        return script[seen.turn - 1]

    return choose


def test_failures_are_repaired_in_the_benchmarks_own_loop(bench: Bench) -> None:
    one, two = wrong(), wrong("oob_write", turn=1)
    path, run, into = failures_file(bench, one, two), bench.folder / "repairs", bench.folder / "repairs.jsonl"
    scripts: Scripts = {"wrong_result": [answer(""), answer("generic_gemm")], "oob_write": [refused(1), refused(2)]}
    common = ("repair", path, "--run", run, "--teacher=teacher", "--turns=2", "--profiler=replay", "--into", into)
    with LlmServer(by_kernel(scripts)) as server:
        models = bench.models(server)
        # A budget that one call exhausts: the rest is for the next session.
        status, output = bench.fixit(*common, models, "--budget-tokens=1000", "--concurrency=1")
        assert (status, len(server.seen)) == (1, 1)
        assert "not finished: 2" in output
        status, output = bench.fixit(*common, models)
        assert (status, len(server.seen)) == (0, 4), output
        assert bench.fixit(*common, models)[0] == 0
        assert len(server.seen) == 4
    assert "repaired: 1" in output
    assert "not repaired: 1" in output
    for turn, outcome in enumerate(("extraction_error", "correct")):
        assert f"teacher-{one.origin.key.case}-h100-v0-t0-turn{turn}: {outcome}: " in output
    (repair,) = read_lines(Repair, into)
    assert repair.failure == one
    assert (repair.source, repair.turns, repair.teacher) == (load("generic_gemm"), 2, "teacher")
    assert repair.verdict.correct
    assert repair.turn.key.turn == 1

    first = next(seen for seen in server.seen if load("wrong_result").rstrip() in seen.messages[2][1])
    assert [role for role, _ in first.messages] == ["system", "user", "assistant", "user"]
    assert first.messages[:2] == [(message.role, message.content) for message in one.prompt]
    told = first.messages[3][1]
    assert told.startswith(f"{FEEDBACK.partition(chr(10) * 2)[0]}\n\nRepair this kernel.")
    assert "smallest change" in told
    assert "You have 2 turns" in told
    later = next(seen for seen in server.seen if seen.turn == 2)
    assert later.messages[5][1].endswith(
        "- 1 turn is left. Answer with one complete kernel source, not with a patch.\n- Goal: correct.\n"
    )


def test_a_repair_may_have_to_do_more_than_be_correct(bench: Bench) -> None:
    path, run = failures_file(bench, wrong()), bench.folder / "repairs"
    common = ("repair", path, "--run", run, "--teacher=teacher", "--turns=1", "--profiler=replay")
    with LlmServer(by_kernel({"wrong_result": [answer("generic_gemm")]})) as server:
        models = bench.models(server)
        status, output = bench.fixit(*common, models, "--require-target")
        assert status == 0, output
        assert "not repaired: 1" in output
        assert "executing one of the SASS families" in server.seen[0].messages[3][1]
        # What counts as repaired is part of what the run is.
        status, output = bench.fixit(*common, models)
        assert status == 2
        assert 'goal.target "required", found goal.target "ignored"' in output


def test_the_failed_kernel_again_is_no_repair(bench: Bench) -> None:
    commented = f"// a comment makes no other kernel\n{load('generic_gemm')}"
    failure = wrong("generic_gemm").model_copy(update={"source": commented})
    path, run = failures_file(bench, failure), bench.folder / "repairs"
    with LlmServer(by_kernel({"generic_gemm": [answer("generic_gemm")]})) as server:
        status, output = bench.fixit(
            *("repair", path, "--run", run, "--teacher=teacher", "--turns=1", "--profiler=replay", bench.models(server))
        )
    assert status == 0
    assert "same kernel: 1" in output
    assert read_lines(Repair, run / "repairs.jsonl") == []


def test_a_repair_that_nobody_measured_waits_and_says_for_what(bench: Bench) -> None:
    path, run = failures_file(bench, wrong()), bench.folder / "repairs"
    unknown = Answer(text=f"```cuda\n// no evidence has these bytes\n{load('generic_gemm')}\n```")
    with LlmServer(by_kernel({"wrong_result": [unknown]})) as server:
        for turns in (1, 1):
            status, output = bench.fixit(
                *("repair", path, "--run", run, "--teacher=teacher", f"--turns={turns}", "--profiler=replay"),
                bench.models(server),
            )
            assert status == 1
            assert "not measured: 1" in output
            assert "on a machine with the case's GPU" in output
            assert "not repaired" not in output
    assert len(server.seen) == 1


def rationale(text: str) -> Answer:
    return Answer(text=f"<rationale>\n{text}\n</rationale>")


def explain(bench: Bench, server: LlmServer, *more: str, repairs: int = 1) -> tuple[int, str]:
    path = bench.folder / "repairs.jsonl"
    failed = [wrong(turn=turn) for turn in range(repairs)]
    write_lines([make_repair(failure, load("generic_gemm")) for failure in failed], path)
    return bench.fixit(
        "explain", path, "--into", bench.folder / "out", "--teacher=teacher", bench.models(server), *more
    )


def new_line() -> str:
    """A line of the repair that the failed kernel does not have."""
    known = set(load("wrong_result").splitlines())
    return next(
        line for line in load("generic_gemm").splitlines() if line not in known and len(line.split("//")[0]) > 30
    )


def test_an_ill_formed_reply_is_retried_and_a_planted_leak_is_caught(bench: Bench) -> None:
    leaking = f"{THOUGHTS} So: {new_line()}"
    steps = [
        Answer(text=THOUGHTS),
        rationale(leaking),
        rationale(f"{THOUGHTS} The corrected kernel shows that."),
        rationale(THOUGHTS),
    ]
    with LlmServer(steps) as server:
        status, output = explain(bench, server)
        assert (status, len(server.seen)) == (0, 4), output
        # All of it is on disk: nothing is asked twice.
        assert explain(bench, server)[0] == 0
        assert len(server.seen) == 4
    (found,) = read_lines(Rationale, bench.folder / "out" / "rationales.jsonl")
    assert (found.text, found.attempts, found.teacher) == (THOUGHTS, 4, "teacher")
    first, *later = server.seen
    for part in (
        *(message.content.strip() for message in wrong().prompt),
        load("wrong_result").rstrip(),
        FEEDBACK.strip(),
    ):
        assert part in first.messages[1][1]
    assert load("generic_gemm").rstrip() in first.messages[1][1]
    complaints = [seen.messages[-1][1] for seen in later]
    assert "expected exactly one <rationale>" in complaints[0]
    assert "it quotes code of the repaired kernel" in complaints[1]
    assert "the repaired kernel was given" in complaints[2]


def test_a_rationale_that_stays_bad_is_dropped(bench: Bench) -> None:
    with LlmServer(rationale(f"{THOUGHTS} {new_line()}")) as server:
        status, output = explain(bench, server, "--attempts=2")
        assert (status, len(server.seen)) == (0, 2)
    assert "dropped, leak: 1" in output
    assert read_lines(Rationale, bench.folder / "out" / "rationales.jsonl") == []


def test_a_long_one_is_written_shorter_and_a_record_without_room_is_not_asked_for(bench: Bench) -> None:
    with LlmServer([rationale(THOUGHTS * 3), rationale(THOUGHTS)]) as server:
        status, output = explain(bench, server, "--most-tokens=400")
        assert (status, len(server.seen)) == (0, 2), output
        assert "write it again, shorter" in server.seen[1].messages[-1][1]
        status, output = explain(bench, server, "--record-tokens=2000")
    assert (status, len(server.seen)) == (0, 2)
    assert "dropped, no room: 1" in output


def test_a_spent_budget_leaves_the_rest_for_later(bench: Bench) -> None:
    with LlmServer(rationale(THOUGHTS)) as server:
        status, output = explain(bench, server, "--budget-tokens=1000", "--concurrency=1", repairs=2)
        assert (status, len(server.seen)) == (1, 1)
        assert "not finished, budget: 1" in output
        status, output = explain(bench, server, "--budget-tokens=1000", repairs=2)
        assert (status, len(server.seen)) == (1, 1)  # of all sessions together
        assert explain(bench, server, repairs=2)[0] == 0
        assert len(server.seen) == 2


def test_whoever_interrupts_is_told_how_to_go_on(bench: Bench) -> None:
    def interrupted(seen: Seen) -> Step:
        if seen.number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return rationale(THOUGHTS)

    with LlmServer(interrupted) as server:
        status, output = explain(bench, server, "--concurrency=1", repairs=3)
        assert (status, len(server.seen)) == (130, 2)
        assert "run the same command again to go on" in output
        assert explain(bench, server, "--concurrency=1", repairs=3)[0] == 0
    assert len(server.seen) in (3, 4)  # the answer on the way may have been kept


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_else_is_paid_for_where_no_answer_can_be_kept(bench: Bench) -> None:
    with LlmServer(rationale(THOUGHTS)) as server:
        assert explain(bench, server, repairs=4)[0] == 0
        asked = len(server.seen)
        path, models = bench.folder / "repairs.jsonl", bench.models(server)
        with full_disk(4096):
            status, output = bench.fixit(
                *("explain", path, "--into", bench.folder / "new", "--teacher=teacher", models, "--concurrency=1")
            )
    assert status == 1
    assert "not finished, disk_full: 1" in output
    assert "not finished, stopped: 3" in output
    assert len(server.seen) == asked + 1


def test_a_teacher_that_has_no_room_or_is_another_one(bench: Bench) -> None:
    with LlmServer(context_length()) as server:
        status, output = explain(bench, server)
        assert status == 0
        assert "dropped, context: 1" in output
        path = bench.folder / "repairs.jsonl"
        status, output = bench.fixit(
            *("explain", path, "--into", bench.folder / "out", "--teacher=teacher"),
            bench.models(server, temperature=0.5),
        )
    assert status == 2
    assert "temperature" in output


def test_kernels_that_were_written_at_once_are_explained_from_the_task_alone(bench: Bench) -> None:
    repair, path = make_repair(wrong(), load("generic_gemm")), bench.folder / "corrects.jsonl"
    values = {name: getattr(repair.failure, name) for name in Correct.model_fields if name in Failure.model_fields}
    correct = Correct(**{**values, "source": repair.source, "verdict": repair.verdict})
    write_lines([correct], path)
    with LlmServer(rationale(THOUGHTS)) as server:
        models = bench.models(server)
        status, output = bench.fixit("explain", path, "--into", bench.folder / "out", "--teacher=teacher", models)
    assert (status, len(server.seen)) == (0, 1), output
    told = server.seen[0].messages[1][1]
    assert load("generic_gemm").rstrip() in told
    assert "The kernel that failed" not in told
    (found,) = read_lines(Rationale, bench.folder / "out" / "rationales.jsonl")
    assert found.repair == correct


def test_a_teacher_that_stays_away_leaves_everything_for_later(bench: Bench) -> None:
    with LlmServer(unauthorized()) as server:
        status, output = explain(bench, server)
        assert status == 1
        assert "not finished, model_authentication: 1" in output
        path = failures_file(bench, wrong())
        common = ("repair", path, "--run", bench.folder / "repairs", "--teacher=teacher", "--profiler=replay")
        status, output = bench.fixit(*common, bench.models(server))
        assert status == 1
        assert "not finished: 1" in output
        assert "the fault model_authentication kept from happening: 5" in output


def test_what_is_explained_is_a_kernel(bench: Bench) -> None:
    path = failures_file(bench, wrong())
    (bench.folder / "empty.jsonl").touch()
    with LlmServer([]) as server:
        common = ("--into", bench.folder / "out", "--teacher=teacher", bench.models(server))
        assert bench.fixit("explain", path, *common) == (
            2,
            f"ptxbench fixit: {path}: expected kernels to explain, as `ptxbench fixit` writes to repairs.jsonl and "
            "corrects.jsonl, found failures; repair them first, and explain the repairs.jsonl of that\n",
        )
        status, output = bench.fixit("explain", bench.folder / "empty.jsonl", *common)
        assert (status, "found none" in output) == (2, True)
    assert not (bench.folder / "out").exists()


def test_a_repair_is_named_by_its_kernels() -> None:
    repair = make_repair(wrong(), load("generic_gemm"))
    assert repair.id == wrong().id
    assert repair.source_sha256 == Candidate(source=load("generic_gemm")).sha256
