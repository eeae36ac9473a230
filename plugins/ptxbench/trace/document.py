"""A parsed data file that still knows the line of each key, and strict JSON reading."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ptxbench.errors import InputError
from ptxbench.trace.base import Loc
from ptxbench.trace.faults import FileError, field_name, first_problem

Model = TypeVar("Model", bound=BaseModel)

Lines = dict[Loc, int]
"""Location of a key or list item -> its line, counted from 1."""


@dataclass(frozen=True)
class Document:
    """One JSON or YAML document of a file."""

    path: Path
    data: object
    locate: Callable[[], Lines]
    """Computed only when there is something to report."""

    def error(self, loc: Loc, expected: str, found: str, advice: str = "") -> FileError:
        """The error of the value at ``loc``; its line is that of the nearest key that exists."""
        lines = self.locate()
        known = next((lines[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in lines), None)
        return FileError(self.path, known, field_name(loc), expected, found, advice)

    def parse(self, model: type[Model]) -> Model:
        """Validate the document.

        Raises:
            FileError: at the first field that breaks the schema; it says how many more do.
        """
        try:
            return model.model_validate_json(json.dumps(self.data))
        except ValidationError as failure:
            errors = failure.errors(include_url=False)
            problem = first_problem(errors, model, self.data)
            more = f" (and {len(errors) - 1} more in this document)" if len(errors) > 1 else ""
            raise self.error(problem.loc, problem.expected, problem.found + more, problem.advice) from None


def read_text(path: Path) -> str:
    """The file's text. Raises InputError when it cannot be read as UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(path, None, "", "UTF-8 text", f"byte {error.start} that is not") from None
    except OSError as error:
        raise InputError(f"{path}: expected a readable file; found: {error.strerror}. To do: check the path.") from None


def read_json(path: Path) -> Document:
    """A file that is one JSON document.

    Raises:
        InputError: unreadable, not JSON, a key twice in one object, or NaN and infinity not written as strings.
    """
    text = read_text(path)
    return Document(path, parse_json(path, text), lambda: json_lines(path, text))


def read_jsonl(path: Path) -> Iterator[Document]:
    """The documents of a file with one JSON document per line; blank lines are skipped. Raises as ``read_json``."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            lines: Lines = {(): number}
            yield Document(path, parse_json(path, line, number), partial(dict, lines))


class _RefusedError(Exception):
    """JSON that Python accepts and we do not."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(name)


def parse_json(path: Path, text: str, first_line: int = 1) -> object:
    """Strict JSON: see ``read_json``. ``first_line`` is the line of the file at which ``text`` starts."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at column {error.colno}"
        raise FileError(path, first_line + error.lineno - 1, "", "a JSON document", found) from None
    except ValueError:
        # Of int(), which refuses thousands of digits.
        digits = re.search(rf"[0-9]{{{sys.get_int_max_str_digits()}}}", text)
        line = first_line + text.count("\n", 0, digits.start() if digits else 0)
        raise FileError(path, line, "", "a JSON document", "an integer of too many digits to read") from None
    except RecursionError:
        raise FileError(path, first_line, "", "a JSON document", "nesting too deep to read") from None
    except _RefusedError:
        json_lines(path, text, first_line)
        raise


_SPACE = re.compile(r"[ \t\n\r]*")


def json_lines(path: Path, text: str, first_line: int = 1) -> Lines:
    """Lines of all keys and items of valid JSON.

    Raises:
        FileError: at a key that its object already has, or at a bare NaN or Infinity.
    """
    lines: Lines = {}
    decoder = json.JSONDecoder()

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    def line(at: int) -> int:
        return first_line + text.count("\n", 0, at)

    def walk(at: int, loc: Loc) -> int:
        lines.setdefault(loc, line(at))
        if text[at] not in "{[":
            value, end = decoder.raw_decode(text, at)
            if isinstance(value, float) and text[at:end].strip("-") in ("NaN", "Infinity"):
                expected = 'a number, or one of the strings "NaN", "Infinity", "-Infinity"'
                raise FileError(path, line(at), field_name(loc), expected, f"bare {text[at:end]}")
            return end
        is_object, index = text[at] == "{", 0
        at = skip(at + 1)
        while text[at] not in "}]":
            step: str | int = index
            if is_object:
                key_at = at
                step, at = decoder.raw_decode(text, at)
                if (*loc, step) in lines:
                    found = f"{step!r} again after line {lines[(*loc, step)]}"
                    raise FileError(path, line(key_at), field_name((*loc, step)), "each key once", found)
                lines[(*loc, step)] = line(key_at)
                at = skip(skip(at) + 1)
            at = skip(walk(at, (*loc, step)))
            if text[at] == ",":
                at = skip(at + 1)
            index += 1
        return at + 1

    try:
        walk(skip(0), ())
    except RecursionError:
        return lines  # Deeper than anything we read: the lines above it are enough to report it.
    return lines
