"""The workflow that docs/ci.md shows: YAML that GitHub would take, whose commands are ours and whose gates parse."""

import re
import shlex
from typing import Any

import pytest
import yaml

from ptxbench.cli import _parser
from ptxbench.report.gates import parse
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "ci.md").read_text()
OPTIONS = (ROOT / "plugins" / "ptxbench" / "plugin" / "options.py").read_text()
PYTEST_OWN = {"--junitxml"}


def workflow() -> dict[Any, Any]:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    return found


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def commands() -> list[list[str]]:
    """The commands of all steps that are ours."""
    lines = [
        line.strip().removeprefix("|| ")
        for step in steps()
        for line in step.get("run", "").replace("\\\n", " ").splitlines()
    ]
    words = [shlex.split(line.partition(" >> ")[0]) for line in lines]
    return [found for found in words if found and found[0] in ("pytest", "ptxbench")]


def test_it_is_a_workflow():
    found = workflow()
    # YAML 1.1 reads the key `on` as a truth value; GitHub reads it as the word.
    assert set(found) == {"name", True, "permissions", "concurrency", "jobs"}
    assert set(found[True]) == {"pull_request", "workflow_dispatch"}
    for job in found["jobs"].values():
        assert set(job) <= {"runs-on", "timeout-minutes", "steps"}
        assert "self-hosted" in job["runs-on"]
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "run", "if"}
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step.get("uses", "a/b@v1"))


def test_its_commands_have_the_options_that_exist():
    found = commands()
    assert {words[0] for words in found} == {"pytest", "ptxbench"}
    for words in found:
        if words[0] == "ptxbench":
            _parser().parse_args(words[1:])
            continue
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert {option for option in options - PYTEST_OWN if f'"{option}"' not in OPTIONS} == set()
        # A path that stands alone would move pytest's root.
        assert not {"--run", "--ptx-json", "--baseline"} & set(words)


def gates() -> list[str]:
    """Every gate of the page, from commands and from prose."""
    quoted = re.findall(r'--gate "([^"]+)"', PAGE)
    shown = re.findall(r"^gate (?:MET|FAILED) +([^:]+):", PAGE, re.MULTILINE)
    return [*quoted, *shown]


@pytest.mark.parametrize("gate", gates())
def test_its_gates_parse(gate):
    assert str(parse(gate)) == gate


def test_there_are_gates():
    assert len(gates()) >= 6


def test_the_grammar_is_the_parsers_own():
    from ptxbench.report.gates import parser

    (shown,) = re.findall(r"^### The language\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    own = [line.strip() for line in (parser.__doc__ or "").splitlines()]
    assert [line for line in shown.splitlines() if line not in own] == []
