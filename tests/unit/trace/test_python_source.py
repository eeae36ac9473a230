"""Python source in data files."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, ValidationError

from ptxbench.cases.formula import FormulaError, evaluate
from ptxbench.trace import Definition, Solution
from ptxbench.trace.python_source import NotPythonError, functions_of, may_define, parse_expression, parse_module
from tests.unit.trace import samples

DEEP = "-" * 100_000 + "1"
"""For which CPython's parser raises MemoryError."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 +", "a syntax error: invalid syntax"),
        ("1\0", "a syntax error: source code string cannot contain null bytes"),
        (DEEP, "nesting too deep to parse"),
        ("(" * 5000 + "1" + ")" * 5000, "nested|nesting"),
    ],
)
def test_what_does_not_parse_says_why(text: str, reason: str) -> None:
    for parse in (parse_module, parse_expression):
        with pytest.raises(NotPythonError, match=reason):
            parse(text)


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (Definition, samples.change(samples.definition(), "reference", to=f"def run(): return {DEEP}")),
        (Definition, samples.change(samples.definition(), "constraints", to=[DEEP])),
        (
            Solution,
            samples.change(
                samples.solution(),
                "sources",
                to=[{"path": "src/kernel.cu", "content": "x"}, {"path": "a.py", "content": DEEP}],
            ),
        ),
    ],
)
def test_no_field_ends_in_a_traceback(model: type[BaseModel], document: object) -> None:
    with pytest.raises(ValidationError, match="nesting too deep to parse"):
        model.model_validate_json(json.dumps(document))


def test_formulas_are_parsed_the_same_way() -> None:
    with pytest.raises(FormulaError, match="nest"):
        evaluate("(" * 240 + "1" + ")" * 240, {})


@pytest.mark.parametrize(
    ("source", "defined"),
    [
        ("def make(): ...", True),
        ("make = other", True),
        ("a, (make, *b) = other", True),
        ("from lib import make", True),
        ("from lib import other as make", True),
        ("from lib import *", True),
        ("import make.part", True),
        ("try:\n    def make(): ...\nexcept ImportError: ...", True),
        ("class A:\n    def make(self): ...", False),
        ("def run():\n    def make(): ...", False),
        ("from make import other", False),
        ("make()", False),
    ],
)
def test_names_that_a_module_may_have(source: str, defined: bool) -> None:
    assert may_define(source, "make") is defined


def test_functions_in_order() -> None:
    assert functions_of(parse_module("def b(): ...\nx = 1\ndef a():\n    def c(): ...")) == ("b", "a")
