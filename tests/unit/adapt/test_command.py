"""``ptxbench fixit``, as it is called."""

from __future__ import annotations

import pytest

from ptxbench.adapt.manifest import Manifest
from ptxbench.adapt.model import CORRECTS, FAILURES, Correct, Failure, read_lines
from ptxbench.adapt.recipe import find_recipe, recipe_names, series
from ptxbench.cli import USAGE_ERROR, main
from tests.support.fixit_set import EXAMPLE, REASONER, STUDENT
from tests.unit.factories import ROOT


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_recipes(capsys):
    assert main(["fixit", "recipes"]) == 0
    out = capsys.readouterr().out
    assert "s6  8ops-pre-balanced" in out
    assert "reasoning by the model under adaptation (there Qwen3.6-27B, 258 records)" in out


def test_collect_prints_the_funnel_and_writes_failures(tmp_path, capsys):
    into = tmp_path / "work"
    assert main(["fixit", "collect", str(EXAMPLE), "--recipe", "s1", "--into", str(into)]) == 0
    out = capsys.readouterr().out
    assert "15 correct" in out
    assert out.rstrip().endswith("failures.jsonl: 1 failures")
    assert len(read_lines(Failure, into / FAILURES)) == 1
    assert main(["fixit", "collect", str(EXAMPLE), "--recipe", "s1", "--into", str(into)]) == USAGE_ERROR
    assert "expected no such file yet" in capsys.readouterr().err


def test_collect_for_kernelgen(tmp_path, capsys):
    assert main(["fixit", "collect", str(EXAMPLE), "--recipe", "s0", "--into", str(tmp_path)]) == 0
    assert len(read_lines(Correct, tmp_path / CORRECTS)) == 7
    assert "7 correct kernels" in capsys.readouterr().out


def arguments(fixit_set, out, *more: str) -> list[str]:
    where = ["--from", str(fixit_set.pool), "--model", STUDENT, "--out", str(out)]
    return ["fixit", "build", *fixit_set.runs, "--recipe", "4ops", *where, *more]


def test_build(fixit_set, tmp_path, capsys):
    terms = f"{REASONER}=CC0-1.0"
    assert main(arguments(fixit_set, tmp_path / "one", "--teacher", REASONER, "--licence", terms)) == 0
    manifest = Manifest.read(tmp_path / "one")
    out = capsys.readouterr().out
    assert f"{manifest.records} records" in out
    assert manifest.train_sha256 in out
    assert "screened (screen.library_header)" in out
    assert manifest.licences[f"written by {REASONER}"] == "CC0-1.0"


def test_build_of_nothing_prints_where_it_went(fixit_set, tmp_path, capsys):
    assert main(arguments(fixit_set, tmp_path / "one", "--teacher", "nobody")) == USAGE_ERROR
    printed = capsys.readouterr()
    assert "a rationale of another teacher alone" not in printed.err
    assert "turns of the runs" in printed.out
    assert "expected at least one record" in printed.err
    assert not (tmp_path / "one").exists()


def test_a_licence_without_terms(fixit_set, tmp_path, capsys):
    assert main(arguments(fixit_set, tmp_path / "one", "--licence", "x")) == USAGE_ERROR
    assert "expected NAME=TERMS" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["repair", "explain"])
def test_steps_of_teachers_declare_their_options_when_they_are_used(step, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fixit", step, "--help"])
    assert ended.value.code == 0
    assert "--teacher" in capsys.readouterr().out


def test_the_page_shows_what_is_printed(tmp_path, capsys):
    page = (ROOT / "docs" / "adaptation.md").read_text()
    assert main(["fixit", "collect", str(EXAMPLE), "--recipe", "4ops", "--into", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "\n".join(lines[:-1]) in page


def test_the_page_names_every_recipe_with_its_operators_turns_and_balance():
    page = (ROOT / "docs" / "adaptation.md").read_text()
    for name in recipe_names():
        recipe = find_recipe(name).recipe
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"{recipe.turns} |" in row
        assert (f"at most {recipe.cap}" in row) is (recipe.cap is not None)
    for name, adapter in series().items():
        assert name == "s6" or f"`{name}` is `{adapter.recipe}`" in page
