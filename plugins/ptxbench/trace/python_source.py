"""Python source that data files hold: parsed, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal


class NotPythonError(ValueError):
    """Text that does not parse. ``str()`` says why."""


def parse_module(text: str) -> ast.Module:
    """The syntax tree of a module. Raises NotPythonError."""
    tree = _parse(text, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of one expression. Raises NotPythonError."""
    tree = _parse(text, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parse(text: str, mode: Literal["exec", "eval"]) -> ast.AST:
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError) as error:
        raise NotPythonError(f"a syntax error: {error}") from None
    except (MemoryError, RecursionError):
        # How the parser refuses thousands of nested operators.
        raise NotPythonError("nesting too deep to parse") from None


def functions_of(module: ast.Module) -> tuple[str, ...]:
    """Names of the functions at the top level, in order."""
    return tuple(node.name for node in module.body if isinstance(node, ast.FunctionDef))


def may_define(source: str, name: str) -> bool:
    """Whether running a module could give it the global ``name``: by a definition, an assignment or an import."""
    return any(found in (name, "*") for found in _bound(parse_module(source).body))


def _bound(nodes: list[ast.stmt]) -> Iterator[str]:
    """Names that statements bind in their own scope; ``*`` for what an import of everything brings."""
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
                continue
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
        waiting += ast.iter_child_nodes(node)
