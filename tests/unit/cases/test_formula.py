from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.cases.formula import MAX_BITS, FormulaError, evaluate
from ptxbench.errors import InputError

AXES = {"M": 3, "N": 5, "zero": 0}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2*M*N", 30),
        ("M + N*2", 13),
        ("(M + N)*2", 16),
        ("N - M - 1", 1),
        ("5/2 * 2*M", 15),
        ("N // 2", 2),
        ("N / 5", 1),
        ("2**M", 8),
        ("2**M**2", 512),
        ("1/3 + 2/3", 1),
        (" zero ", 0),
    ],
)
def test_evaluates(formula, value):
    assert evaluate(formula, AXES) == value


@pytest.mark.parametrize(
    ("formula", "expected", "found"),
    [
        ("", "an arithmetic expression", "invalid syntax"),
        ("2*", "an arithmetic expression", "invalid syntax"),
        ("M; N", "an arithmetic expression", "invalid syntax"),
        ("M = 1", "an arithmetic expression", "invalid syntax"),
        ("2*K", "axis names (M, N, zero)", "'K'"),
        ("M/2", "a non-negative integer", "3/2"),
        ("M - N", "a non-negative integer", "-2"),
        ("M/zero", "no division by zero", "`M / zero`"),
        ("M//zero", "no division by zero", "`M // zero`"),
        ("2**(1/2)", "exponents that are integers", "1/2"),
        ("2**(M - N)", "exponents that are integers", "-2"),
        ("9**9**9", "exponents that are integers", "387420489"),
        ("(2**200)**200", f"at most {MAX_BITS} bits", "(2 ** 200) ** 200"),
        ("1/(2**200)**2", f"at most {MAX_BITS} bits", "(2 ** 200) ** 2"),
        ("-M", "+ - * / //", "`-M`"),
        ("M % 2", "+ - * / //", "`M % 2`"),
        ("M if N else 1", "+ - * / //", "`M if N else 1`"),
        ("True", "+ - * / //", "`True`"),
        ("0.5*M", "+ - * / //", "`0.5`"),
        ("'a'", "+ - * / //", "`'a'`"),
        ("M.real", "+ - * / //", "`M.real`"),
        ("__import__('os')", "+ - * / //", "`__import__('os')`"),
        ("[M]", "+ - * / //", "`[M]`"),
        ("(M := 2)", "+ - * / //", "`(M := 2)`"),
        ("M\0", "an arithmetic expression", "null bytes"),
        ("(" * 300, "an arithmetic expression", ""),
        ("1+" * 300, "at most 500 characters", "600"),
    ],
)
def test_refuses(formula, expected, found):
    with pytest.raises(FormulaError) as caught:
        evaluate(formula, AXES)
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert isinstance(caught.value, InputError)


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "//"])
    return st.builds(lambda left, op, right: f"({left} {op} {right})", inner, operators, inner)


@given(st.recursive(st.sampled_from(["M", "N", "zero", "1", "7", "64"]), _combine, max_leaves=12))
def test_agrees_with_exact_arithmetic(formula):
    exact = "".join(f"Fraction({part})" if part.isdigit() else part for part in _split(formula))
    axes = {name: Fraction(value) for name, value in AXES.items()}
    try:
        wanted = Fraction(eval(exact, {"Fraction": Fraction}, axes))
    except ZeroDivisionError:
        wanted = Fraction(-1)
    if wanted.denominator == 1 and wanted >= 0:
        assert evaluate(formula, AXES) == wanted
    else:
        with pytest.raises(FormulaError):
            evaluate(formula, AXES)


def _split(formula: str) -> list[str]:
    return re.findall(r"\d+|\w+|//|\S", formula)


@given(st.text(alphabet="MN12 +-*/().[]'\\\n_a,:", max_size=40))
def test_any_text_is_a_value_or_a_formula_error(formula):
    with suppress(FormulaError):
        assert evaluate(formula, AXES) >= 0
