"""Integer formulas over axes, such as ``2*M*N*K``: a tiny safe evaluator."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from ptxbench.errors import InputError
from ptxbench.trace.python_source import NotPythonError, parse_expression

MAX_LENGTH = 500
"""Characters. Keeps the nesting far below the interpreter's recursion limit."""
MAX_BITS = 256
"""Of any intermediate value: FLOP counts need 64; a power tower fails instead of eating the memory."""

_GRAMMAR = "integers, axis names, + - * / // ** and parentheses"
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
}


def evaluate(formula: str, axes: Mapping[str, int]) -> int:
    """Value of ``formula`` for these axis sizes.

    Integers, axis names, ``+ - * / // **`` and parentheses; computed exactly, so ``5/2*B`` loses nothing.

    Raises:
        FormulaError: anything else in the formula, an unknown axis, division by zero, a value that is too large, or
            a result that is not a non-negative integer.
    """
    value = _Evaluation(formula, axes).value(_parse(formula))
    if value.denominator != 1 or value < 0:
        raise FormulaError(formula, "a result that is a non-negative integer", str(value))
    return value.numerator


class FormulaError(InputError):
    """A formula that is none. The message holds all attributes."""

    def __init__(self, formula: str, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        shown = formula if len(formula) <= 80 else f"{formula[:77]}..."
        super().__init__(f"formula {shown!r}: expected {expected}; found {found}. To do: correct the formula.")


def _parse(formula: str) -> ast.expr:
    if len(formula) > MAX_LENGTH:
        raise FormulaError(formula, f"at most {MAX_LENGTH} characters", str(len(formula)))
    try:
        return parse_expression(formula.strip())
    except NotPythonError as error:
        raise FormulaError(formula, "an arithmetic expression over axis names", f"{error}") from None


class _Evaluation:
    """One evaluation; remembers the formula for its errors."""

    def __init__(self, formula: str, axes: Mapping[str, int]) -> None:
        self.formula = formula
        self.axes = axes

    def value(self, node: ast.expr) -> Fraction:
        """Value of a sub-expression, at most ``MAX_BITS`` bits above and below the fraction bar."""
        value = self._value(node)
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise FormulaError(self.formula, f"values of at most {MAX_BITS} bits", f"more in `{ast.unparse(node)}`")
        return value

    def _value(self, node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return Fraction(number)
            case ast.Name(id=name):
                if name not in self.axes:
                    raise FormulaError(self.formula, f"axis names ({', '.join(self.axes)})", repr(name))
                return Fraction(self.axes[name])
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._power(self.value(left), self.value(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                try:
                    return _OPERATORS[type(op)](self.value(left), self.value(right))
                except ZeroDivisionError:
                    raise FormulaError(self.formula, "no division by zero", f"`{ast.unparse(node)}`") from None
        raise FormulaError(self.formula, _GRAMMAR, f"`{ast.unparse(node)}`")

    def _power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1 or not 0 <= exponent <= MAX_BITS:
            raise FormulaError(self.formula, f"exponents that are integers from 0 to {MAX_BITS}", str(exponent))
        return Fraction(base**exponent.numerator)
