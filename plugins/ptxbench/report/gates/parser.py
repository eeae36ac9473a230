"""The language of ``--gate``, by recursive descent.

::

    gate       = conjunction { "or" conjunction }
    conjunction = term { "and" term }
    term       = "(" gate ")" | metric operator number
    metric     = ( "correct" | "target" | "best_speedup" | "fast_p" "(" decimal ")" ) { "." selector }
    selector   = "inst" | "each" | "at" "(" integer ")" | ( "model" | "case" | "arch" ) "(" glob { "," glob } ")"
    operator   = ">=" | ">" | "<=" | "<" | "==" | "!="
    number     = decimal [ "%" ]
    glob       = characters without spaces, commas and brackets | "'" anything "'" | '"' anything '"'

Its words and what they mean are in docs/ci.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, get_args

from ptxbench.errors import InputError
from ptxbench.report.gates.expression import (
    BARE_GLOB,
    FILTERS,
    METRICS,
    OPERATORS,
    AllOf,
    AnyOf,
    Comparison,
    Gate,
    Metric,
    MetricName,
    Number,
    Operator,
)
from ptxbench.report.gates.scanner import Scanner

MAX_CHARS = 1000
MAX_DEPTH = 20
"""Nested brackets. Both bounds only keep nonsense from exhausting the interpreter."""
MAX_TURNS = 1000
"""As many as ``--turns`` takes."""

SELECTORS = ("inst", "each", "at", *FILTERS)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile("|".join(map(re.escape, OPERATORS)))
_DECIMAL = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![A-Za-z0-9_.])")
_QUOTED = re.compile(r"'[^'\r\n]+'|\"[^\"\r\n]+\"")
_METRICS = "a metric (correct, target, best_speedup, fast_p(P))"


def parse(text: str) -> Gate:
    """Read a gate. Raises InputError that points at the column of the first mistake."""
    if len(text) > MAX_CHARS:
        raise InputError(
            f"--gate: expected at most {MAX_CHARS} characters, found {len(text)}; "
            "split it: --gate may be repeated, and all gates must hold"
        )
    scanner = Scanner(text)
    gate = _disjunction(scanner, 0)
    if not scanner.ended:
        scanner.fail("and, or, or the end")
    return gate


def _disjunction(scanner: Scanner, depth: int) -> Gate:
    terms = _joined(scanner, "or", lambda: _conjunction(scanner, depth))
    return terms[0] if len(terms) == 1 else AnyOf(terms)


def _conjunction(scanner: Scanner, depth: int) -> Gate:
    terms = _joined(scanner, "and", lambda: _term(scanner, depth))
    return terms[0] if len(terms) == 1 else AllOf(terms)


def _joined(scanner: Scanner, word: str, term: Callable[[], Gate]) -> tuple[Gate, ...]:
    found = [term()]
    joint = re.compile(rf"{word}(?![A-Za-z0-9_])")
    while scanner.take(joint) is not None:
        found.append(term())
    return tuple(found)


def _term(scanner: Scanner, depth: int) -> Gate:
    opened = scanner.at
    if not scanner.takes("("):
        return _comparison(scanner)
    if depth == MAX_DEPTH:
        scanner.fail(f"at most {MAX_DEPTH} nested brackets", at=opened)
    gate = _disjunction(scanner, depth + 1)
    if not scanner.takes(")"):
        scanner.fail(f"and, or, or ) for the bracket at column {opened + 1}")
    return gate


def _comparison(scanner: Scanner) -> Comparison:
    metric = _metric(scanner)
    operator = _one_of(scanner.take(_OPERATOR), Operator)
    if operator is None:
        scanner.fail(f"one of {' '.join(OPERATORS)}", "put a comparison behind the metric, as in correct >= 50%")
    at = scanner.at
    bound = Number(_decimal(scanner, "a number of at least 0, such as 0.5 or 50%"), scanner.takes("%"))
    if metric.is_rate and bound.value > 1:
        scanner.fail("a share of turns from 0 to 1, or 0% to 100%", "write a percentage with %", at)
    return Comparison(metric, operator, bound)


def _metric(scanner: Scanner) -> Metric:
    at = scanner.at
    word = scanner.take(_WORD)
    name = _one_of(word, MetricName)
    if name is None:
        scanner.fail(_METRICS, _advice(word, METRICS), at)
    threshold = (
        _in_brackets(scanner, lambda: _decimal(scanner, "the speedup P of fast_p(P)")) if name == "fast_p" else None
    )
    chosen: dict[str, Any] = {}
    while scanner.takes("."):
        at = scanner.at
        selector = scanner.take(_WORD)
        if selector not in SELECTORS:
            scanner.fail(f"a selector ({', '.join(SELECTORS)})", _advice(selector, SELECTORS), at)
        if selector == "inst" and name == "target":
            scanner.fail("target without .inst", "target means correct.inst already", at)
        field = "turns" if selector == "at" else selector
        if field in chosen:
            scanner.fail(f".{selector} once", "put several globs into one, as in .case(gemm*, mha*)", at)
        chosen[field] = _selected(scanner, selector)
    return Metric(name, threshold, **chosen)


def _selected(scanner: Scanner, selector: str) -> object:
    """The value of a selector whose name was read."""
    if selector in FILTERS:
        return _in_brackets(scanner, lambda: _globs(scanner))
    return _in_brackets(scanner, lambda: _turns(scanner)) if selector == "at" else True


def _in_brackets(scanner: Scanner, inner: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever ``inner`` reads
    if not scanner.takes("("):
        scanner.fail("(")
    found = inner()
    if not scanner.takes(")"):
        scanner.fail(")")
    return found


def _turns(scanner: Scanner) -> int:
    at = scanner.at
    digits = scanner.take(re.compile(r"[0-9]+(?![A-Za-z0-9_.])"))
    if digits is None or not 1 <= Decimal(digits) <= MAX_TURNS:
        scanner.fail(f"a number of turns from 1 to {MAX_TURNS}", at=at)
    return int(digits)


def _globs(scanner: Scanner) -> tuple[str, ...]:
    found = [_glob(scanner)]
    while scanner.takes(","):
        found.append(_glob(scanner))
    return tuple(found)


def _glob(scanner: Scanner) -> str:
    quoted = scanner.take(_QUOTED)
    glob = quoted[1:-1] if quoted is not None else scanner.take(BARE_GLOB)
    if glob is None:
        scanner.fail("a name or a glob", "put it in quotes if it has spaces, commas or brackets")
    return glob


def _decimal(scanner: Scanner, expected: str) -> Decimal:
    digits = scanner.take(_DECIMAL)
    if digits is None:
        scanner.fail(expected)
    return Decimal(digits)


def _one_of(word: str | None, literal: Any) -> Any:  # noqa: ANN401 - a Literal, and one of its values
    return word if word in get_args(literal) else None


def _advice(word: str | None, known: tuple[str, ...]) -> str:
    close = get_close_matches((word or "").lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else ""
