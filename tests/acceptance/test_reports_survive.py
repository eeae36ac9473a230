"""Whatever pytest is made to do, table, JSON and JUnit tell each turn once, and only what this session found.

Workers, crashes, reruns, -x, --lf and -k, each through real pytest.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from typing import Any

import pytest

from tests.acceptance.parts import BROKEN, SOURCE

REPLAY = ("--profiler", "replay", "-m", "h100")
QUIET = ("-p", "no:cacheprovider")
GEMM = "gemm_n7168_k5120"


def run(checkout: pytest.Pytester, *arguments: str, name: str = "it") -> pytest.RunResult:
    return checkout.runpytest_subprocess(
        *REPLAY, *arguments, f"--run={name}", f"--ptx-json={name}.json", f"--junitxml={name}.xml"
    )


def turns(checkout: pytest.Pytester, name: str = "it") -> list[str]:
    """Ids of the JSON report's turns."""
    return [row["id"] for row in json.loads((checkout.path / f"{name}.json").read_text())["turns"]]


def timeless(checkout: pytest.Pytester, name: str) -> dict[str, Any]:
    """The JSON report without the time that each stage took."""
    report: dict[str, Any] = json.loads((checkout.path / f"{name}.json").read_text())
    for row in report["turns"]:
        del row["stages_ms"], row["gpu_stages_ms"]
    return report


def suite(checkout: pytest.Pytester, name: str = "it") -> ElementTree.Element:
    """The JUnit suite; every entry of it is a test case with a name, told once, with each property once."""
    found = ElementTree.parse(checkout.path / f"{name}.xml").getroot().find("testsuite")
    assert found is not None
    cases = Counter((case.get("classname"), case.get("name")) for case in found.iter("testcase"))
    assert (None, None) not in cases
    assert set(cases.values()) <= {1}
    assert int(found.get("tests") or -1) == len(cases)
    for case in found.iter("testcase"):
        names = [item.get("name") for item in case.iter("property")]
        assert len(set(names)) == len(names)
        assert "ptxbench.item" not in names
    return found


def cell(checkout: pytest.Pytester, name: str = "it", case: str = GEMM) -> dict[str, float]:
    """N and hits of a cell of the JSON report."""
    cells = json.loads((checkout.path / f"{name}.json").read_text())["cells"]
    (found,) = (cell for cell in cells if cell["case"] == case)
    correct = found["limits"][-1]["correct"]
    return {"turns": correct["turns"], "hits": correct["hits"], "excluded": found["excluded"]}


def break_kernel(checkout: pytest.Pytester, case: str = GEMM, source: str = BROKEN % "here") -> None:
    (checkout.path / "generated" / "reference" / "h100" / case / "kernel.cu").write_text(source)


def test_four_workers_tell_what_one_process_tells(judged):
    break_kernel(judged)
    for name, workers in (("alone", "0"), ("spread", "4")):
        run(judged, *QUIET, "-n", workers, "--trajectories=2", name=name).assert_outcomes(passed=24, failed=6)
    assert timeless(judged, "alone") == timeless(judged, "spread")
    alone, spread = suite(judged, "alone"), suite(judged, "spread")
    for attribute in ("tests", "failures", "errors", "skipped"):
        assert alone.get(attribute) == spread.get(attribute)
    properties = [
        {item.get("name"): item.get("value") for item in found.findall("./properties/property")}
        for found in (alone, spread)
    ]
    assert [found.pop("ptxbench.run") for found in properties] == ["alone", "spread"]
    assert properties[0] == properties[1]
    assert properties[0]["ptxbench.turns"] == "10"


def write_crashing_test(judged, *attempts: int) -> None:
    """``test_own.py``, whose process is killed in these attempts of all, counted from 1."""
    judged.makepyfile(
        test_own=f"""
        import os
        from pathlib import Path

        def test_turn(turn, request):
            log = Path(request.config.rootpath, "log")
            with log.open("a") as file:
                file.write("x")
            if len(log.read_text()) in {attempts}:
                os.kill(os.getpid(), 9)
        """
    )


def test_a_crash_leaves_no_entry_behind(judged):
    write_crashing_test(judged, 3)
    result = run(judged, *QUIET, "-n", "1", "test_own.py", "--gate", "correct >= 1")
    result.assert_outcomes(passed=5)
    assert result.ret == 0
    assert len(turns(judged)) == 5
    assert suite(judged).get("tests") == "5"


def test_an_item_that_keeps_crashing_is_an_error_of_the_machinery_everywhere(judged):
    judged.makepyfile(
        test_own="""
        import os

        def test_turn(turn):
            if "gemm" in turn.key.case:
                os.kill(os.getpid(), 9)
        """
    )
    result = run(judged, *QUIET, "-n", "1", "test_own.py", "--gate", "correct >= 0")
    result.assert_outcomes(passed=4, errors=1)
    assert result.ret == 70
    found = suite(judged)
    assert (found.get("tests"), found.get("errors"), found.get("failures")) == ("5", "1", "0")
    (error,) = found.iter("error")
    assert "crashed while running" in (error.get("message") or "")


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_reruns_are_told_once(judged, workers):
    pytest.importorskip("pytest_rerunfailures")
    break_kernel(judged)
    result = run(judged, *QUIET, "--reruns=2", *workers)
    result.assert_outcomes(passed=12, failed=3)
    result.stdout.fnmatch_lines(["*6 rerun*"])
    found = suite(judged)
    assert (found.get("tests"), found.get("failures")) == ("15", "3")
    assert len(turns(judged)) == 5
    assert cell(judged) == {"turns": 1, "hits": 0, "excluded": 0}


def test_a_crash_counts_among_the_reruns(judged):
    pytest.importorskip("pytest_rerunfailures")
    write_crashing_test(judged, 3, 4)
    run(judged, *QUIET, "-n", "1", "--reruns=3", "test_own.py").assert_outcomes(passed=5)
    assert suite(judged).get("tests") == "5"
    assert len(turns(judged)) == 5


def test_a_run_that_is_started_again_tells_the_same(judged):
    run(judged, *QUIET).assert_outcomes(passed=15, deselected=15)
    first = (judged.path / "it.json").read_text()
    run(judged, *QUIET).assert_outcomes(passed=15, deselected=15)
    assert (judged.path / "it.json").read_text() == first


def test_stopping_at_the_first_failure_tells_what_was_reached(judged):
    break_kernel(judged, "mha_with_lse_d128")
    result = run(judged, *QUIET, "-x")
    result.assert_outcomes(passed=1, failed=1, deselected=15)
    assert result.ret == 1
    assert [turn.split("-")[1] for turn in turns(judged)] == [GEMM, "mha_with_lse_d128"]
    found = suite(judged)
    assert (found.get("tests"), found.get("failures")) == ("2", "1")


def test_the_last_failed_alone_are_told_and_judged(judged):
    break_kernel(judged)
    run(judged).assert_outcomes(passed=12, failed=3, deselected=15)
    break_kernel(judged, source=SOURCE)
    result = run(judged, "--lf", "--gate", "correct >= 1")
    result.assert_outcomes(passed=3)
    assert result.ret == 0
    assert turns(judged) == [f"reference-{GEMM}-h100-v0-t0-turn0"]
    assert suite(judged).get("tests") == "3"
    # Nothing failed last: pytest runs everything again.
    run(judged, "--lf").assert_outcomes(passed=15, deselected=15)
    assert len(turns(judged)) == 5


def test_a_selection_by_name_is_what_the_report_is_about(judged):
    result = run(judged, *QUIET, "-k", "test_correct and (causal or gemm)", "--gate", "correct == 100%")
    result.assert_outcomes(passed=3, deselected=27)
    assert result.ret == 0
    assert len(turns(judged)) == 3
    assert suite(judged).get("tests") == "3"
    again = ("--model", "replay:it", "--min-speedup=0.5")
    run(judged, *QUIET, *again, "-k", "gemm", name="again").assert_outcomes(passed=3, deselected=27)
    assert [turn.split("-")[1] for turn in turns(judged, "again")] == [GEMM]
