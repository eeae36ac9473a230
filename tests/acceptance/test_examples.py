"""The runs of real models under generated/examples: portable, whole, and judged by today's rules as they were."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ptxbench.cli import main
from tests.conftest import ROOT

EXAMPLES = ROOT / "generated" / "examples"
RUNS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


def readme(run: Path) -> str:
    """The page that shows the run's table: its own, or the project's."""
    page = run / "README.md"
    return (page if page.exists() else ROOT / "README.md").read_text()


def first_turns(run: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(run.glob("turns/*/turn0.json"))]


MEASURED = [run for run in RUNS if all(record["verdict"]["outcome"] == "correct" for record in first_turns(run))]
"""Runs whose first turns are all known to be correct: what must be found again by the hash of its device code."""


def test_there_are_examples() -> None:
    assert RUNS


@each_run
def test_no_verdict_changes(run, capsys) -> None:
    assert main(["judge", str(run)]) == 0
    assert "0 verdicts changed" in capsys.readouterr().out


@each_run
def test_a_run_names_no_path_of_a_machine(run) -> None:
    for path in run.rglob("*"):
        if path.is_file():
            assert not re.search(r"/(?:tmp|root|home|work)/", path.read_text()), path


@each_run
def test_every_turn_has_its_call_and_what_it_was_told(run) -> None:
    records = [json.loads(path.read_text()) for path in sorted(run.glob("turns/*/turn*.json"))]
    assert records
    for record in records:
        exchange = record["exchange"]
        assert exchange["reply"]["text"]
        roles = [message["role"] for message in exchange["added"]]
        assert roles == (["user"] if record["key"]["turn"] else ["system", "user"])


@each_run
def test_the_readme_shows_its_table(run, capsys, monkeypatch) -> None:
    """A rule that judges otherwise changes the page too: paste what this test found."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", str(run)]) == 0
    table = capsys.readouterr().out.partition("\nEvidence: ")[0]
    assert f"```\n{table}\n```" in readme(run), table


def test_some_runs_were_measured() -> None:
    assert MEASURED


@pytest.mark.parametrize("run", MEASURED, ids=lambda run: run.name)
def test_its_first_kernels_still_become_what_was_measured(run, checkout) -> None:
    """Compiled again and found by the hash of their device code. All turns would take more than a minute."""
    (checkout.path / "generated" / "examples").symlink_to(EXAMPLES)
    cases = sorted({path.parent.name.split("-")[-4] for path in run.glob("turns/*/turn*.json")})
    words = ["-m", "h100", f"--model=replay:generated/examples/{run.name}", "--profiler", "replay"]
    result = checkout.runpytest_subprocess(*words, "-k", f"turn0 and ({' or '.join(f'{case}-h100' for case in cases)})")
    result.stdout.fnmatch_lines([f"Total: {len(cases)} turns, {len(cases)} correct*"])
