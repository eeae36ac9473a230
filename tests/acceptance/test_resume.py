"""Runs that are killed, stopped, damaged, or continued by somebody else. Real processes, real builds."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ptxbench.agent import RunStore, TrajectoryPlan
from ptxbench.models import open_model
from ptxbench.records import Candidate, Outcome
from tests.acceptance.parts import BROKEN, started
from tests.conftest import ROOT
from tests.unit.factories import make_record, suite_case

TURNS = 8
ARGUMENTS = (
    *("-p", "no:cacheprovider", "--profiler", "replay", "-q", "-k", "test_correct and h100", "--case", "gemm*"),
    *("--model", "replay:recorded", "--run", "killed"),
)


@pytest.fixture
def recorded(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A checkout with an earlier run of one trajectory, whose sources the compiler takes its time to refuse."""
    # An empty cache: what is built again is built by the compiler.
    monkeypatch.setenv("PTXBENCH_CACHE", str(checkout.path / "cache"))
    store = RunStore.open(checkout.path / "generated" / "recorded", {})
    for turn in range(TURNS):
        candidate = Candidate(source=f"#include <cuda_bf16.h>\n{BROKEN % turn}")
        store.save(make_record(turn, model="claude", source_sha256=candidate.sha256), candidate)
    return checkout


def turns(folder: Path) -> Path:
    return folder / "generated" / "killed" / "turns" / "replay.recorded-gemm_n7168_k5120-h100-v0-t0"


def finished(folder: Path) -> dict[str, int]:
    """Names of the stored records and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in turns(folder).glob("turn*.json")}


def wait_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(finished(folder)) < count:
        assert time.monotonic() < deadline, f"only {len(finished(folder))} turns after 60 s"
        time.sleep(0.02)


def wait_until_gone(group: int) -> None:
    """Until no process of a group is left: what was killed may not have been taken leave of yet."""
    deadline = time.monotonic() + 20
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)
        pytest.fail(f"processes of group {group} are left after 20 s")


def test_a_killed_run_continues_where_it_was(recorded):
    with started(recorded.path, *ARGUMENTS) as process:
        wait_for(recorded.path, 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    before = finished(recorded.path)
    assert 3 <= len(before) < TURNS
    builds = set((recorded.path / "cache" / "builds").rglob("build.json"))
    assert len(builds) - len(before) in (0, 1)

    result = recorded.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(failed=TURNS, deselected=TURNS * 5)
    after = finished(recorded.path)
    assert {name: after[name] for name in before} == before
    assert len(after) == TURNS
    assert len(set((recorded.path / "cache" / "builds").rglob("build.json"))) == TURNS
    assert not (recorded.path / "generated" / "killed" / "aside").exists()
    outcomes = [stored.record.verdict.outcome for stored in RunStore.read(turns(recorded.path).parents[1]).turns()]
    assert outcomes == [Outcome.COMPILE_ERROR] * TURNS


def test_ctrl_c_leaves_whole_records_and_no_process(recorded):
    # Where the signal lands inside ``open``, nobody has the file yet to close it; as an error that would be the result.
    with started(recorded.path, *ARGUMENTS, "-W", "ignore::ResourceWarning") as process:
        wait_for(recorded.path, 2)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0].decode()
        # Where the signal lands inside one of pytest's own hooks, pytest calls it an internal error.
        assert process.returncode in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR), output
        wait_until_gone(process.pid)
    assert "KeyboardInterrupt" in output
    folder = turns(recorded.path)
    assert 2 <= len(finished(recorded.path)) < TURNS
    for path in folder.glob("turn*.json"):
        assert json.loads(path.read_text())["verdict"]["outcome"] == "compile_error"
    assert not (folder.parents[1] / "faults").exists()
    recorded.runpytest_subprocess(*ARGUMENTS).assert_outcomes(failed=TURNS, deselected=TURNS * 5)


def test_two_processes_on_one_run_share_its_turns(recorded):
    with started(recorded.path, *ARGUMENTS) as first, started(recorded.path, *ARGUMENTS) as second:
        outputs = [process.communicate(timeout=120)[0].decode() for process in (first, second)]
    assert all(f"{TURNS} failed" in output for output in outputs), outputs
    assert len(finished(recorded.path)) == TURNS
    assert not list((recorded.path / "generated" / "killed").rglob("*.tmp"))


def test_a_damaged_record_is_set_aside_and_done_again(judged):
    arguments = ("-p", "no:cacheprovider", "--profiler", "replay", "-m", "h100 and gemm", "--run", "damaged")
    judged.runpytest_subprocess(*arguments).assert_outcomes(passed=3, deselected=27)
    plan = TrajectoryPlan(open_model("reference", root=ROOT, open_run=RunStore.read), suite_case(), 0, 0, 1)  # type: ignore[arg-type]
    path = RunStore.read(judged.path / "generated" / "damaged").turn_path(plan.key(0))
    text = path.read_text()
    path.write_text(text[:1000])
    result = judged.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=3, deselected=27)
    result.stdout.fnmatch_lines(["*turn0.json: not a whole record*; moved to */aside and done again"])
    assert json.loads(path.read_text())["verdict"] == json.loads(text)["verdict"]
    assert len(list((judged.path / "generated" / "damaged" / "aside").iterdir())) == 2


def test_a_run_of_another_suite_content_is_refused(judged):
    arguments = ("-p", "no:cacheprovider", "--profiler", "replay", "-m", "h100 and gemm", "--run", "mine")
    judged.runpytest_subprocess(*arguments).assert_outcomes(passed=3, deselected=27)
    (judged.path / "cases").unlink()
    suites = judged.path / "cases" / "suites"
    suites.mkdir(parents=True)
    for name in ("definitions", "workloads"):
        (judged.path / "cases" / name).symlink_to(ROOT / "cases" / name)
    text = (ROOT / "cases" / "suites" / "primary.yaml").read_text()
    (suites / "primary.yaml").write_text(text.replace("atol: 0.01", "atol: 0.02", 1))
    result = judged.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --run *mine: expected the suite 'primary' as it was when this run began*"])


def test_a_folder_that_is_no_run_is_refused(judged):
    (judged.path / "generated" / "notes").mkdir()
    (judged.path / "generated" / "notes" / "todo.txt").write_text("mine")
    result = judged.runpytest_subprocess("-p", "no:cacheprovider", "-m", "h100", "--run", "notes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --run *notes: expected a run folder or an empty one, found 'todo.txt'*"])
    assert [entry.name for entry in (judged.path / "generated" / "notes").iterdir()] == ["todo.txt"]
