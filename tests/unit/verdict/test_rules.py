"""docs/verdict-rules.md and the code list the same rules and flags."""

import re
from pathlib import Path

import pytest

from ptxbench.records import Outcome, Target
from ptxbench.verdict import Flag, Rule, TargetRule

DOCUMENT = Path(__file__).parents[3] / "docs" / "verdict-rules.md"


def rows(section: str) -> list[tuple[str, str]]:
    text = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| `?([^`|]+?)`? \|", text, re.MULTILINE)


@pytest.mark.parametrize(("section", "names"), [("Outcome", Rule), ("Target indicator", TargetRule), ("Flags", Flag)])
def test_the_document_lists_exactly_the_rules_of_the_code(
    section: str, names: type[Rule] | type[TargetRule] | type[Flag]
) -> None:
    listed = [name for name, _ in rows(section)]
    assert sorted(listed) == sorted(names)


def test_the_document_names_known_answers_and_leaves_none_out() -> None:
    outcomes, targets = dict(rows("Outcome")), dict(rows("Target indicator"))
    # Somebody else's results are what somebody else says.
    assert (outcomes.pop(Rule.IMPORTED), targets.pop(TargetRule.IMPORTED)) == ("any", "any")
    assert set(outcomes.values()) == set(Outcome)
    assert set(targets.values()) == set(Target)


def test_identifiers_are_stable_in_form() -> None:
    for name in (*Rule, *TargetRule):
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
    assert not set(Rule) & set(TargetRule)
