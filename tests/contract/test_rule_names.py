"""The toolchain's screen and the judge name the same rules, though neither imports the other."""

import re

import pytest

from ptxbench.records import Build, BuildStatus, Finding, ToolchainIdentity
from ptxbench.toolchain import ScreenRule
from ptxbench.verdict import Rule
from ptxbench.verdict.outcome import decide_build
from tests.conftest import ROOT

NOT_OF_THE_SCREEN = {
    Rule.SCREEN_OTHER,
    Rule.SCREEN_FOREIGN_KERNEL,
    Rule.SCREEN_FOREIGN_MODULE,
    Rule.SCREEN_FOREIGN_LIBRARY,
}
"""A finding under a name that is not known (of an older toolchain, say), and what only running shows."""

IDENTITY = ToolchainIdentity(
    nvcc="13.0.88", origin="pip", host_compiler="g++ 12", disassembler="none", flags=(), tvm_ffi="0.1", headers="light"
)


def as_rule(name: str) -> str:
    return f"screen.{name.replace('-', '_')}"


def test_every_finding_has_a_rule_and_every_rule_of_the_screen_a_finding():
    judged = {rule for rule in Rule if rule.startswith("screen.")} - NOT_OF_THE_SCREEN
    assert {as_rule(name) for name in ScreenRule} == judged
    assert "unreadable-object" in set(ScreenRule)


@pytest.mark.parametrize("name", ScreenRule)
def test_the_judge_names_a_finding_s_own_rule(name: ScreenRule):
    build = Build(
        candidate_sha256="0" * 64,
        arch="h100",
        status=BuildStatus.SCREENED,
        findings=(Finding(rule=name, message="found"),),
        toolchain=IDENTITY,
    )
    decision = decide_build(build)
    assert decision is not None
    assert decision.rule == as_rule(name)


def test_the_documents_list_them():
    screen = (ROOT / "docs" / "toolchain.md").read_text().split("\n## Screen\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", screen, re.MULTILINE) == list(ScreenRule)
