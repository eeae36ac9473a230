"""docs/add-a-case.md and docs/add-an-arch.md, followed to the letter in a fresh checkout.

A code block behind a line that is a path in backticks is written to that file. A console block is run command by
command; every line that it shows below a command must be in what the command prints.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.cases import load_arch
from tests.conftest import ROOT

_STEP = re.compile(r"^(?:`(?P<path>[\w./-]+)`:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Path and content of each file, and command with the lines that it shows, in the page's order."""
    for match in _STEP.finditer((ROOT / "docs" / page).read_text()):
        if match["path"]:
            yield match["path"], match["text"]
        elif match["kind"] == "console":
            for command in re.split(r"^\$ ", match["text"], flags=re.MULTILINE)[1:]:
                line, _, shown = command.partition("\n")
                yield f"$ {line}", shown


@pytest.fixture
def fresh(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with data files of its own, on a machine without a GPU."""
    for name in ("cases", "knowledge_packs"):
        (checkout.path / name).unlink()
        shutil.copytree(ROOT / name, checkout.path / name)
    (checkout.path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--profiler replay -p no:cacheprovider")
    monkeypatch.setenv("COLUMNS", "100")
    return checkout.path


def follow(page: str, folder: Path) -> int:
    """Do what the page says. Returns the number of commands."""
    commands = 0
    for what, text in steps(page):
        if not what.startswith("$ "):
            path = folder / what
            assert not path.exists(), f"{what} is there already: the page would write over it"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        words = shlex.split(what.removeprefix("$ "), comments=True)
        words = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]
        done = subprocess.run(
            words, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{what}\n{done.stdout}{done.stderr}"
        for line in text.splitlines():
            assert line in done.stdout.splitlines(), f"{what}: expected the line {line!r}\n{done.stdout}"
        commands += 1
    return commands


def needs_torch() -> None:
    """Skip where there is none, without importing it."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")


ORACLE = """
import sys
from pathlib import Path
from ptxbench.cases import load_suite
from ptxbench.profiler.inputs import InputSource
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.state import reference_outputs

case = load_suite(Path("."), sys.argv[1]).case(*sys.argv[2:])
small = case.workload.model_copy(update={"axes": dict.fromkeys(case.workload.axes, 4)})
case = case.model_copy(update={"workload": small})
source = InputSource(case)
outputs = reference_outputs(case, compile_reference(case), source.make(source.keep(), "cpu"))
assert {name: tuple(value.shape) for name, value in outputs.items()} == case.output_shapes()
"""
"""Makes a case's inputs, in small and on the CPU, and asks its reference. Its own process: torch cannot be imported
again once pytester forgot it."""


def oracle_answers(folder: Path, suite: str, case: str, arch: str) -> None:
    command = [sys.executable, "-c", ORACLE, suite, case, arch]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_case_in_ten_minutes(fresh: Path) -> None:
    needs_torch()
    assert follow("add-a-case.md", fresh) == 2
    oracle_answers(fresh, "mine", "silu_and_mul_h4096", "h100")
    # Three lines of YAML, as the page promises.
    entry = (fresh / "cases" / "suites" / "mine.yaml").read_text().partition("cases:\n")[2]
    assert len(entry.splitlines()) == 3


def test_an_architecture(fresh: Path) -> None:
    needs_torch()
    assert follow("add-an-arch.md", fresh) == 2
    assert load_arch(fresh, "a100").selects("HMMA.16816.F32.BF16")
    oracle_answers(fresh, "ampere", "gemm_n7168_k5120", "a100")


def test_every_default_that_the_page_names_is_one() -> None:
    from ptxbench.cases.suite import GivenEntry

    text = (ROOT / "docs" / "add-a-case.md").read_text().partition("beyond the three lines")[2]
    named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    optional = {name for name, field in GivenEntry.model_fields.items() if not field.is_required()}
    assert named == optional
