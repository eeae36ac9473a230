"""What the project's front pages promise a newcomer exists: commands, options, marks, paths, links, pinned versions."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FRONT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "usage.md"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

NOT_IN_HELP = {"--lf", "--junitxml"}
"""pytest's help shows only the longest spelling of an option."""

_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*")


def commands(page: Path) -> Iterator[list[str]]:
    """The commands that a page shows, in blocks and inline, as words."""
    text = page.read_text()
    lines = [line for block in _BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *_INLINE.findall(_BLOCK.sub("", text))]:
        words = line.removeprefix("$ ").strip()
        if words.split(" ")[0] in ("make", "pytest", "ptxbench"):
            yield shlex.split(words, comments=True)


def shown(program: str, pages: list[Path]) -> list[list[str]]:
    return [words[1:] for page in pages for words in commands(page) if words[0] == program]


@cache
def answer(*arguments: str) -> str:
    """What a fresh interpreter prints in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "plugins"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def known_options() -> set[str]:
    text = answer("pytest", "--help", "-p", "no:cacheprovider")
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text)) | NOT_IN_HELP


def make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    return set(phony[1].split())


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    titles = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_make_targets_exist_and_are_explained():
    targets = make_targets()
    rules = set(re.findall(r"^([a-z]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    explained = set(re.findall(r'^\t@echo "make (\w+) ', (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert rules == targets == explained | {"help"}
    used = {word for words in shown("make", PAGES) for word in words if "=" not in word and not word.startswith("-")}
    assert {"bench", "test"} <= used
    assert used <= targets


def test_pytest_options_exist():
    options = known_options()
    assert {"--model", "--run", "-m"} <= options
    lines = shown("pytest", PAGES)
    assert len(lines) > 5
    for words in lines:
        for word in words:
            if word.startswith("-"):
                assert word.split("=")[0] in options, words


@pytest.mark.parametrize("page", FRONT, ids=lambda page: page.name)
def test_options_named_in_passing_exist(page):
    named = {word for word in _INLINE.findall(page.read_text()) if re.fullmatch(r"--[a-z][\w-]*(?:[ =].*)?", word)}
    assert {re.split(r"[ =]", word)[0] for word in named} <= known_options()


def test_every_option_of_ours_is_in_the_usage_page():
    section = answer("pytest", "--help", "-p", "no:cacheprovider").split("\nPTXBench:\n")[1].split("\n\n")[0]
    ours = set(re.findall(r"^  (--[\w-]+)", section, re.MULTILINE))
    table = set(re.findall(r"^\| `(--[\w-]+)", (ROOT / "docs" / "usage.md").read_text(), re.MULTILINE))
    assert ours == table
    assert len(ours) > 8


def test_marks_exist():
    expressions = [words[words.index("-m") + 1] for words in shown("pytest", PAGES) if "-m" in words]
    known = set(re.findall(r"@pytest\.mark\.(\w+)", answer("pytest", "--markers", "-p", "no:cacheprovider")))
    used = {name for expression in expressions for name in re.findall(r"\w+", expression)} - {"and", "or", "not"}
    assert "h100" in used
    assert used <= known


def test_subcommands_exist():
    used = {words[0] for words in shown("ptxbench", PAGES) if words}
    known = set(re.findall(r"^    ([\w-]+)(?: |$)", answer("ptxbench", "--help"), re.MULTILINE))
    assert {"doctor", "judge"} <= used
    assert {word for word in used if not word.startswith("-")} <= known


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_paths_exist(page):
    words = {
        word for word in _INLINE.findall(_BLOCK.sub("", page.read_text())) if "/" in word and _PATH.fullmatch(word)
    }
    # What is in capitals stands for a name of the reader's.
    paths = [word for word in sorted(words) if not re.search(r"\b[A-Z]{2,}\b", word)]
    assert paths
    assert [word for word in paths if not (ROOT / word).exists()] == []


@each_page
def test_links_resolve(page):
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    assert {page for page in PAGES if page.parent == index.parent} - {index} <= linked


def test_every_requirement_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines[0].startswith("# ")
    pins = dict(line.split("==") for line in lines[1:])
    extras = project["optional-dependencies"]
    requirements = [
        requirement for name in ("toolchain", "llm", "frames", "report", "test") for requirement in extras[name]
    ]
    requirements += project["dependencies"]
    for requirement in requirements:
        if requirement.startswith("ptxbench["):
            continue
        name = _NAME.match(requirement)
        assert name
        assert name[0].lower() in {pin.lower() for pin in pins}, requirement
        if exact := re.search(r"==([\w.]+)$", requirement):
            assert pins[name[0]] == exact[1]
    assert {"setuptools", "torch"} <= set(pins)


def test_the_ci_script_runs_everything():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    for target in ("check", "test", "bench"):
        assert re.search(rf'^step "\w+" {target}\b', script.read_text(), re.MULTILINE)


def test_the_readme_shows_the_table_that_make_bench_prints(checkout, monkeypatch):
    """A new measurement of the reference solutions changes the page too: paste what this test found."""
    (checkout.path / "generated" / "reference").symlink_to(ROOT / "generated" / "reference")
    monkeypatch.setenv("COLUMNS", "100")
    result = checkout.runpytest_subprocess("-m", "h100", "--profiler", "replay", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=15, deselected=15)
    printed = result.outlines[result.outlines.index("reference on h100") :]
    table = "\n".join(printed[: next(n for n, line in enumerate(printed) if line.startswith("N: "))])
    assert table.startswith("reference on h100\n")
    assert f"```\n{table}\n```" in (ROOT / "README.md").read_text(), table


def test_a_path_that_moves_pytests_root_is_refused_with_the_way_to_write_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "h100", "--run", str(tmp_path), "--collect-only", "-q"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"expected pytest's settings from {ROOT / 'pyproject.toml'}, found: none" in done.stderr
    assert f"write --run={tmp_path}, with '='" in done.stderr
    assert "Traceback" not in done.stderr
    answer("pytest", "-m", "h100", f"--run={tmp_path}", "--collect-only", "-q", "-p", "no:cacheprovider")
