"""The examples in docs/feedback.md are what the code says today, with the real compiler."""

import re
from pathlib import Path

import pytest

from ptxbench.agent.feedback.parts import ADVICE_CHARS, FACTS_CHARS, HEADLINE_CHARS, MAX_CHARS, NEXT_CHARS
from ptxbench.records import Outcome
from ptxbench.toolchain import Toolchain
from tests.acceptance.feedback_examples import EXAMPLES, Examples
from tests.conftest import ROOT

PAGE = (ROOT / "docs/feedback.md").read_text()
_EXAMPLE = re.compile(r"^### ([^\n]+)\n(?:(?!###|```)[^\n]*\n)*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = dict(_EXAMPLE.findall(PAGE))


@pytest.fixture(scope="module")
def examples(build_cache: Path) -> Examples:
    return Examples(Toolchain.discover(cache_dir=build_cache))


def test_the_page_has_an_example_for_every_outcome_of_a_model() -> None:
    assert list(SHOWN) == list(EXAMPLES)
    outcomes = {name.partition(",")[0] for name in SHOWN}
    assert outcomes == {outcome.value for outcome in Outcome} - {"unknown", "infrastructure_error"}


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_is_what_the_code_says(name: str, examples: Examples) -> None:
    assert SHOWN[name] == examples.text(name)


def test_the_page_states_the_budgets() -> None:
    for number in (HEADLINE_CHARS, FACTS_CHARS, ADVICE_CHARS, NEXT_CHARS, MAX_CHARS):
        assert f"{number:,}" in PAGE
