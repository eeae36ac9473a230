"""Real pytest-xdist: whole trajectories on one worker, the same ids and report, and life after a crash."""

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tests.acceptance.parts import BROKEN

CRASHES = """
    import os
    from pathlib import Path

    def test_before():
        pass

    def test_crash():
        mark = Path({mark!r})
        if len(mark.read_text()) < {times}:
            mark.write_text(mark.read_text() + "x")
            os._exit(1)

    def test_after():
        pass
"""


def crash(checkout: pytest.Pytester, times: int) -> pytest.RunResult:
    mark = checkout.path / "mark"
    mark.write_text("")
    checkout.makepyfile(test_a=CRASHES.format(mark=str(mark), times=times))
    return checkout.runpytest_subprocess("-n", "1", "test_a.py", "-p", "no:cacheprovider", "-ra")


def test_the_item_of_a_crashed_worker_runs_again(checkout):
    result = crash(checkout, times=1)
    result.assert_outcomes(passed=3)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*replacing crashed worker gw0*", "*3 passed, 1 rerun*"])


def test_an_item_that_keeps_crashing_is_an_error_and_no_failure(checkout):
    result = crash(checkout, times=5)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*worker 'gw1' crashed while running 'test_a.py::test_crash'*"])
    assert result.ret == 1


REPLAY = ("-p", "no:cacheprovider", "--profiler", "replay", "-m", "h100", "--trajectories", "2")


def ids_and_report(checkout: pytest.Pytester, name: str, *arguments: str) -> tuple[list[str], dict[str, Any]]:
    """Ids in the order of the JUnit report, sorted, and the JSON report without the time that each stage took."""
    result = checkout.runpytest_subprocess(
        *REPLAY, *arguments, "--run", name, "--ptx-json", f"{name}.json", "--junitxml", f"{name}.xml"
    )
    result.assert_outcomes(passed=30)
    cases = ElementTree.parse(checkout.path / f"{name}.xml").getroot().findall(".//testcase")
    names = sorted(f"{case.get('classname')}::{case.get('name')}" for case in cases)
    report: dict[str, Any] = json.loads((checkout.path / f"{name}.json").read_text())
    for row in report["turns"]:
        del row["stages_ms"]
    return names, report


def test_two_workers_give_the_ids_and_the_report_of_none(judged):
    alone = ids_and_report(judged, "alone", "-n", "0")
    spread = ids_and_report(judged, "spread", "-n", "2")
    assert len(alone[0]) == 30
    assert spread == alone
    # Resumed, by the other kind of session.
    assert ids_and_report(judged, "alone", "-n", "2") == alone


def test_a_trajectory_stays_on_one_worker_and_each_worker_has_its_gpu(judged, monkeypatch):
    """``-n auto``, over devices that no machine has, so that stored evidence answers everywhere."""
    devices = ["GPU-3", "MIG-1", "GPU-7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(devices))
    judged.makepyfile(
        test_own="""
        import os
        from pathlib import Path

        def test_where(turn, request):
            line = f"{turn.key.trajectory_id} {os.environ['CUDA_VISIBLE_DEVICES']} {os.environ['PYTEST_XDIST_WORKER']}"
            with Path(request.config.rootpath, "where").open("a") as file:
                file.write(line + "\\n")

        test_there = test_where
        """
    )
    result = judged.runpytest_subprocess(*REPLAY, "--profiler", "auto", "-n", "auto", "test_own.py")
    result.assert_outcomes(passed=20)
    lines = [line.split() for line in (judged.path / "where").read_text().splitlines()]
    workers: dict[str, set[str]] = {}
    for trajectory, _, worker in lines:
        workers.setdefault(trajectory, set()).add(worker)
    assert len(workers) == 10
    assert all(len(names) == 1 for names in workers.values())
    assert {(worker, device) for _, device, worker in lines} == {
        (f"gw{number}", device) for number, device in enumerate(devices)
    }


def test_the_replacement_of_a_crashed_worker_finishes_its_trajectories_from_disk(judged, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,GPU-3")
    judged.makepyfile(
        test_own="""
        import os
        from pathlib import Path

        def test_turn(turn, request):
            log = Path(request.config.rootpath, "log")
            with log.open("a") as file:
                words = turn.key, os.environ["PYTEST_XDIST_WORKER"], os.environ["CUDA_VISIBLE_DEVICES"]
                file.write(" ".join(map(str, words)) + "\\n")
            if len(log.read_text().splitlines()) == 3:
                os.kill(os.getpid(), 9)
        """
    )
    result = judged.runpytest_subprocess(*REPLAY, "-n", "1", "test_own.py", "--run", "crashed")
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines(["*10 passed, 1 rerun*"])
    lines = [line.split() for line in (judged.path / "log").read_text().splitlines()]
    assert [worker for _, worker, _ in lines] == ["gw0"] * 3 + ["gw1"] * 8
    assert {device for _, _, device in lines} == {"MIG-1"}
    assert lines[2][0] == lines[3][0]
    assert len({turn for turn, _, _ in lines}) == 10


def test_stopping_at_the_first_failure_ends_soon(judged):
    (judged.path / "mine.cu").write_text(BROKEN % "here")
    result = judged.runpytest_subprocess(*REPLAY, "-n", "2", "-x", "--model", "file:mine.cu")
    outcomes = result.parseoutcomes()
    assert result.ret != 0
    assert 1 <= outcomes["failed"] <= 4
    assert "passed" not in outcomes


OLDER_BENCHMARK = """
    import warnings

    from pytest_benchmark.logger import PytestBenchmarkWarning

    def pytest_configure(config):
        found = "Benchmarks are automatically disabled because xdist plugin is active.Benchmarks cannot be performed."
        warnings.warn(PytestBenchmarkWarning(found))
"""


def test_what_an_older_pytest_benchmark_warns_of_under_xdist_ends_no_run(checkout):
    """Up to 5.2 it warns while it is configured, with or without benchmarks; ours turns warnings into errors."""
    checkout.makepyfile(older=OLDER_BENCHMARK)
    result = checkout.runpytest_subprocess("-p", "older", "-p", "no:cacheprovider", "--collect-only", "-m", "h100")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
