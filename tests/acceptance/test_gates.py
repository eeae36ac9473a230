"""Gates through real pytest: exit statuses, what the summary says, and what a mistake costs."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.acceptance.parts import BROKEN, SOURCE

REPLAY = ("-p", "no:cacheprovider", "--profiler", "replay")
GEMM = "h100 and gemm"


def run(checkout: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return checkout.runpytest_subprocess(*REPLAY, *arguments)


def gates(result: pytest.RunResult) -> list[str]:
    """What the summary says of gates, details included."""
    lines = [line for line in result.outlines if re.match(r"gate |    (MET|UNKNOWN|FAILED|warning|and )|gates: ", line)]
    return [re.sub(r"\x1b\[\d*m", "", line) for line in lines]


def edit_kernel(checkout: pytest.Pytester, case: str, source: str) -> None:
    (checkout.path / "generated" / "reference" / "h100" / case / "kernel.cu").write_text(source)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_gates_decide_the_exit_status_and_say_value_and_margin(judged, workers):
    # test_speedup fails: without a gate that would be status 1.
    arguments = ("-m", "h100", "--min-speedup", "0.95", *workers)
    good = run(judged, *arguments, "--gate", "fast_p(0.8).inst >= 0.5", "--gate", "best_speedup.each > 92%")
    good.assert_outcomes(passed=10, failed=5, **({} if workers else {"deselected": 15}))
    assert good.ret == 0
    assert gates(good) == [
        "gate MET      fast_p(0.8).inst >= 0.5: 100.0% (5 of 5), margin +50.0 points",
        "gate MET      best_speedup.each > 92%: 0.925, margin +0.005 "
        "(reference gemm_n7168_k5120 h100, worst of 5 cells)",
    ]
    bad = run(judged, *arguments, "--gate", "correct == 100%", "--gate", "fast_p(0.925) > 0 or best_speedup >= 1")
    assert bad.ret == 1
    assert gates(bad) == [
        "gate MET      correct == 100%: 100.0% (5 of 5), margin +0.0 points",
        "gate FAILED   fast_p(0.925) > 0 or best_speedup >= 1",
        "    FAILED: fast_p(0.925) > 0: 0.0% (0 of 5), margin +0.0 points",
        "    FAILED: best_speedup >= 1: 0.925, margin -0.075",
    ]


def test_a_mistake_in_a_gate_is_found_before_anything_runs(judged):
    result = run(judged, "-m", GEMM, "--gate", "fastp(0.8) >= 1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --gate: expected a metric *, found 'fastp' at column 1; did you mean fast_p[?]",
            "  fastp(0.8) >= 1",
            "  ^",
        ]
    )
    assert [entry.name for entry in (judged.path / "generated").iterdir()] == ["reference"]


def test_unknowns_are_never_met_and_say_so(judged):
    edit_kernel(judged, "gemm_n7168_k5120", SOURCE.replace("128>>>", "64>>>"))
    result = run(
        judged, "-m", "h100", "--gate", "correct >= 90%", "--gate", "correct >= 80%", "--gate", "correct <= 80%"
    )
    result.assert_outcomes(passed=12, skipped=3, deselected=15)
    assert result.ret == 1
    assert gates(result) == [
        "gate UNKNOWN  correct >= 90%: 80.0% (4 of 5), margin -10.0 points (1 unknown turn: up to 100.0%)",
        "gate MET      correct >= 80%: 80.0% (4 of 5), margin +0.0 points (1 unknown turn: up to 100.0%)",
        "gate UNKNOWN  correct <= 80%: 80.0% (4 of 5), margin -20.0 points (1 unknown turn: up to 100.0%)",
    ]


def test_a_gate_over_nothing_is_not_met(judged):
    result = run(judged, "-m", GEMM, "--gate", "correct.model(claude*) >= 0", "--gate", "correct.at(8) >= 0")
    assert result.ret == 1
    assert gates(result) == [
        "gate UNKNOWN  correct.model(claude*) >= 0: ? (no cell matches; there is reference gemm_n7168_k5120 h100)",
        "gate UNKNOWN  correct.at(8) >= 0: ? (trajectories of reference gemm_n7168_k5120 h100 were given 1 turn)",
    ]
    # B200 has no reference here: its turns are skipped.
    result = run(judged, "-m", "gemm", "--gate", "correct >= 0", "--gate", "correct.arch(h100) >= 0")
    assert result.ret == 1
    assert gates(result) == [
        "gate UNKNOWN  correct >= 0: 100.0% (1 of 1), margin +100.0 points "
        "(no turn of reference gemm_n7168_k5120 b200 has a record)",
        "gate MET      correct.arch(h100) >= 0: 100.0% (1 of 1), margin +100.0 points",
    ]


def test_infrastructure_errors_have_a_status_of_their_own(judged, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    result = run(judged, "-m", GEMM, "--profiler", "local", "--gate", "correct >= 0")
    result.assert_outcomes(errors=3, deselected=27)
    assert result.ret == 70
    assert gates(result) == [
        "gate UNKNOWN  correct >= 0: ? (no turn is in N)",
        "gates: 3 tests could not be judged for infrastructure errors",
    ]


def test_other_tests_keep_their_say(judged):
    judged.makepyfile(test_other="def test_no(): assert False")
    assert run(judged, "-m", GEMM, "--gate", "correct >= 0").ret == 0
    result = run(judged, "--case", "gemm*", "ptx_tests", "test_other.py", "--gate", "correct.arch(h100) >= 0")
    assert gates(result)[0].startswith("gate MET ")
    assert result.ret == 1


@pytest.mark.parametrize("how", [("--continue-on-collection-errors",), ("-n", "2")])
def test_what_could_not_be_collected_keeps_its_say(judged, how):
    judged.makepyfile(test_other="import no_such_module")
    result = run(judged, "--case", "gemm*", "ptx_tests", "test_other.py", *how, "--gate", "correct.arch(h100) >= 0")
    assert gates(result)[0].startswith("gate MET ")
    assert result.ret == 1


def test_a_session_that_stops_early_meets_no_gate(judged):
    edit_kernel(judged, "gemm_n7168_k5120", BROKEN % "here")
    result = run(judged, "-m", "h100", "-x", "--gate", "correct >= 0")
    assert result.ret == 1
    assert gates(result) == [
        "gate UNKNOWN  correct >= 0: 0.0% (0 of 1), margin +0.0 points; 4 turns of this session not reached"
    ]


@pytest.mark.parametrize(
    ("selection", "status"),
    [
        # pytest knows all marks, but not all words that a name might hold.
        (("-m", "no_such and h100"), pytest.ExitCode.USAGE_ERROR),
        (("-k", "no_such"), pytest.ExitCode.NO_TESTS_COLLECTED),
    ],
)
def test_a_session_without_any_turn_meets_no_gate(judged, selection, status):
    result = run(judged, *selection, "--gate", "correct >= 0")
    assert result.ret == status
    assert gates(result) == ["gate UNKNOWN  correct >= 0: not judged: no turn was selected"]


def test_a_baseline_is_kept_or_not(judged):
    assert run(judged, "-m", "h100", "--ptx-json=before.json").ret == 0
    same = run(judged, "-m", "h100", "--baseline=before.json", "--junitxml=gates.xml")
    assert same.ret == 0
    title = "--baseline before.json --max-regression 5%"
    assert gates(same) == [
        f"gate MET      {title}: 20 of 20 values of 5 cells kept; worst: "
        "reference gemm_n7168_k5120 h100 correct.at(1): 100.0% -> 100.0% (+0.0%), margin +5.0%"
    ]
    suite = ElementTree.parse(judged.path / "gates.xml").getroot().find("testsuite")
    assert suite is not None
    found = {item.get("name"): item.get("value") or "" for item in suite.findall("./properties/property")}
    assert found["ptxbench.gate.1"].startswith(f"MET {title}: 20 of 20 values")
    # As if it had been faster, on another driver.
    document = json.loads((judged.path / "before.json").read_text())
    for row in document["turns"]:
        if row["key"]["case"].startswith("gemm"):
            row["verdict"]["speedup"] = 1.0
    document["environment"]["devices"][0]["driver"] = "570.1"
    (judged.path / "before.json").write_text(json.dumps(document))
    slower = run(judged, "-m", "h100", "--baseline=before.json", "--max-regression=7%")
    assert slower.ret == 1
    assert gates(slower) == [
        "gate FAILED   --baseline before.json --max-regression 7%: 18 of 20 values of 5 cells kept; worst: "
        "reference gemm_n7168_k5120 h100 best_speedup.at(1): 1.000 -> 0.925 (-7.5%), margin -0.5%",
        "    FAILED: reference gemm_n7168_k5120 h100 best_speedup.at(1): 1.000 -> 0.925 (-7.5%)",
        "    FAILED: reference gemm_n7168_k5120 h100 best_speedup.inst.at(1): 1.000 -> 0.925 (-7.5%)",
        "    warning: driver differs: baseline: 570.1; now: 580.159",
    ]
    assert run(judged, "-m", "h100", "--baseline=before.json", "--max-regression=0.08").ret == 0
    fewer = run(judged, "-m", "h100", "-k", "causal", "--baseline=before.json")
    assert fewer.ret == 1
    assert gates(fewer)[0].startswith(
        "gate UNKNOWN  --baseline before.json --max-regression 5%: 8 of 8 values of 2 cells kept, "
        "3 cells of the baseline not in this session, so that nobody knows what became of them; worst: "
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-regression=5%",), "ERROR: expected --max-regression beside --baseline FILE, found it alone; *"),
        (
            ("--baseline=no.json",),
            "ERROR: --baseline *no.json: expected a JSON report that can be read, found: No such*",
        ),
        (("--baseline=pyproject.toml",), "ERROR: --baseline *pyproject.toml: expected a JSON report as --ptx-json *"),
        (("--baseline=x", "--max-regression=5"), "*--max-regression: expected a percentage from 0% to 100%*"),
    ],
)
def test_options_out_of_place_end_the_session_at_once(judged, arguments, message):
    result = run(judged, "-m", GEMM, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    assert [entry.name for entry in (judged.path / "generated").iterdir()] == ["reference"]
