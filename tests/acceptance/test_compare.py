"""``ptxbench compare``, as users start it: on a run, on JSON reports, with its exit statuses."""

import json
import subprocess
import sys

import pytest

from ptxbench.report import write_report
from tests.unit.report.reports import WRONG, made, report

GOOD, BAD = [[made(1.0), made(0.9)]] * 6, [[made(1.0), WRONG]] * 6


@pytest.fixture
def reports(checkout: pytest.Pytester) -> pytest.Pytester:
    """A checkout with three JSON reports."""
    for name, trajectories in (("good", GOOD), ("again", GOOD), ("bad", BAD)):
        write_report(checkout.path / f"{name}.json", report(*trajectories))
    return checkout


def compare(checkout: pytest.Pytester, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptxbench", "compare", *arguments],
        cwd=checkout.path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("good.json", "bad.json"), 0),
        (("good.json", "bad.json", "--fail-on-regression"), 1),
        (("good.json", "again.json", "bad.json", "--fail-on-regression"), 1),
        (("good.json", "again.json", "--fail-on-regression"), 0),
        (("bad.json", "good.json", "--fail-on-regression"), 0),
        (("good.json", "bad.json", "--fail-on-regression", "--max-regression=60%"), 0),
    ],
)
def test_a_regression_is_the_exit_status_where_that_is_asked_for(reports, arguments, status):
    done = compare(reports, *arguments)
    assert done.returncode == status, done.stderr
    assert f"{arguments[1].removesuffix('.json')} against {arguments[0].removesuffix('.json')}: 1 cell, " in done.stdout


def test_regressions_are_shown_with_their_interval(reports):
    lines = compare(reports, "good.json", "bad.json").stdout.splitlines()
    assert "REGRESSION  correct                100.0%    50.0%     -50.0   -50.0 to -50.0" in lines
    assert "            best_speedup            1.000    1.000    +0.000   +0.000 to +0.000" in lines


def test_json_has_every_metric(reports):
    done = compare(reports, "good.json", "bad.json", "--json", "--fail-on-regression")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    (cell,) = document["against"][0]["cells"]
    assert len(cell["deltas"]) == 12
    assert cell["deltas"][0] == {
        "metric": "correct",
        "before": 1.0,
        "after": 0.5,
        "after_at_most": 0.5,
        "unknown_before": 0,
        "unknown_after": 0,
        "difference": -0.5,
        "interval": [-0.5, -0.5],
        "change": "regression",
    }


def test_a_run_is_compared_with_its_own_report(judged):
    judged.runpytest_subprocess(
        *("-p", "no:cacheprovider", "--profiler=replay", "-m", "h100", "--run=monday", "--ptx-json=it.json")
    ).assert_outcomes(passed=15, deselected=15)
    done = compare(judged, "it.json", "monday", "--fail-on-regression")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "monday against it: 5 cells, 0 regressions, 0 undecided, 0 improvements" in done.stdout
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("good.json",), "expected two reports or more to compare, found 1"),
        (("good.json", "bad.json", "--max-regression=5"), "--max-regression: expected a percentage from 0% to 100%"),
        (("good.json", "pyproject.toml"), "pyproject.toml: expected a JSON report"),
        (("good.json", "nothing"), "nothing"),
    ],
)
def test_a_mistake_is_one_message(reports, arguments, message):
    done = compare(reports, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("ptxbench compare: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
