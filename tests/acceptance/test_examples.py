"""The runs of real models under generated/examples: portable, whole, and judged by today's rules as they were.

A run with a page of its own (README.md) is described there. The others are measured, and shown by the project's README.
"""

import json
import re

import pytest

from ptxbench.adapt.repair import LEDGER
from ptxbench.cli import main
from tests.conftest import ROOT

EXAMPLES = ROOT / "generated" / "examples"
RUNS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
README = (ROOT / "README.md").read_text()
SHOWN = [run for run in RUNS if not (run / "README.md").exists()]
each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
each_shown = pytest.mark.parametrize("run", SHOWN, ids=lambda run: run.name)


def test_there_are_examples() -> None:
    assert SHOWN


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
    # A repair begins with the kernel that failed and what was said of it.
    first = ["system", "user", "assistant", "user"] if (run / LEDGER).exists() else ["system", "user"]
    for record in records:
        exchange = record["exchange"]
        assert exchange["reply"]["text"]
        roles = [message["role"] for message in exchange["added"]]
        assert roles == (["user"] if record["key"]["turn"] else first)


@each_shown
def test_the_readme_shows_its_table(run, capsys, monkeypatch) -> None:
    """A rule that judges otherwise changes the page too: paste what this test found."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", str(run)]) == 0
    table = capsys.readouterr().out.partition("\nEvidence: ")[0]
    assert f"```\n{table}\n```" in README, table


@each_shown
def test_its_first_kernels_still_become_what_was_measured(run, checkout) -> None:
    """Compiled again and found by the hash of their device code. All turns would take more than a minute."""
    (checkout.path / "generated" / "examples").symlink_to(EXAMPLES)
    cases = sorted({path.parent.name.split("-")[-4] for path in run.glob("turns/*/turn*.json")})
    words = ["-m", "h100", f"--model=replay:generated/examples/{run.name}", "--profiler", "replay"]
    result = checkout.runpytest_subprocess(*words, "-k", f"turn0 and ({' or '.join(f'{case}-h100' for case in cases)})")
    result.stdout.fnmatch_lines([f"Total: {len(cases)} turns, {len(cases)} correct*"])
