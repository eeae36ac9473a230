"""Errors in data files: where, what was expected, what was found."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from ptxbench.errors import InputError
from ptxbench.trace.base import Loc

_ABSENT = object()


class FileError(InputError):
    """A file breaks its schema. The message holds all attributes; ``line`` counts from 1, None when unknown."""

    def __init__(self, file: Path, line: int | None, field: str, expected: str, found: str, advice: str = "") -> None:
        self.file = file
        self.line = line
        self.field = field
        self.expected = expected
        self.found = found
        place = f"{file}:{line}" if line is not None else str(file)
        subject = f"`{field}`: " if field else ""
        advice = advice or "correct the file (the formats are described in docs/cases.md)."
        super().__init__(f"{place}: {subject}expected {expected}; found {found}. To do: {advice}")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`` Did you mean 'x'?`` with the closest of ``known``, or nothing when none is close."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def field_name(loc: Loc) -> str:
    """A location as people write it: ``cases[2].tolerance.atol``."""
    name = ""
    for step in loc:
        name += f"[{step}]" if isinstance(step, int) else f".{step}"
    return name.removeprefix(".")


def describe(value: object) -> str:
    """A found value, short enough for one line."""
    if isinstance(value, Mapping):
        return f"an object with the keys {', '.join(map(str, value)) or '(none)'}"[:120]
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Problem:
    """One error of pydantic in our terms. ``loc`` holds only steps that exist in the data (plus the key at fault)."""

    def __init__(self, error: Mapping[str, Any], model: type[BaseModel], data: object) -> None:
        context = error.get("ctx", {})
        self.loc = _steps_in(data, (*error["loc"], *context.get("field", ())))
        self.expected = error["msg"].removeprefix("Input should be ")
        self.found = describe(error["input"])
        self.advice = ""
        match error["type"]:
            case "broken_rule":
                self.expected, self.found = context["expected"], context["found"]
            case "missing" if isinstance(error["loc"][-1], int):
                self.expected = f"at least {error['loc'][-1] + 1} items"
            case "missing":
                self.expected, self.found = "this required key", "no such key"
            case "extra_forbidden":
                known = known_keys(model, error["loc"][:-1])
                self.expected = f"one of the keys {', '.join(known)}"
                self.found = f"the unknown key {error['loc'][-1]!r}"
                self.advice = f"remove or rename the key.{did_you_mean(str(error['loc'][-1]), known)}"
            case "union_tag_invalid":
                self.loc = (*self.loc, "type")
                self.expected, self.found = f"one of {context['expected_tags']}", repr(context["tag"])
            case "union_tag_not_found":
                self.loc = (*self.loc, "type")
                self.expected, self.found = "this required key", "no such key"
            case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
                self.expected = f"a number {self.expected}"
            case "too_short":
                self.expected = f"at least {context['min_length']} item"
            case "string_pattern_mismatch":
                self.expected = f"a string that matches {context['pattern']}"
            case "json_invalid":
                self.expected, self.found = "text that JSON can carry", context["error"]


def first_problem(errors: Sequence[Mapping[str, Any]], model: type[BaseModel], data: object) -> Problem:
    """The error to report: an unknown key before the missing key that it is probably a misspelling of."""
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    return Problem((unknown or errors)[0], model, data)


def _steps_in(data: object, loc: Loc) -> Loc:
    """``loc`` without the steps that pydantic adds for union members and dict keys, which no document has."""
    steps: list[str | int] = []
    for index, step in enumerate(loc):
        child = _child(data, step)
        if child is not _ABSENT:
            data = child
        elif index < len(loc) - 1 or not isinstance(data, Mapping) or step == "[key]":
            continue
        steps.append(step)
    return tuple(steps)


def _child(data: object, step: str | int) -> object:
    if isinstance(data, Mapping):
        return data.get(step, _ABSENT)
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return _ABSENT


def known_keys(model: type[BaseModel], loc: Loc) -> tuple[str, ...]:
    """Keys of the model at ``loc`` (as pydantic reports it, with union tags) below ``model``."""
    annotation: object = model
    for step in loc:
        annotation = _step_into(annotation, step)
    found = _members(annotation)
    return tuple(found[0].model_fields) if found else ()


def _members(annotation: object) -> list[type[BaseModel]]:
    """The models that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return [model for argument in get_args(annotation) for model in _members(argument)]
    return []


def _step_into(annotation: object, step: str | int) -> object:
    """The annotation one step below: a field, an element, or the union member with the tag ``step``."""
    models = _members(annotation)
    for model in models:
        if step in model.model_fields and len(models) == 1:
            return model.model_fields[str(step)].annotation
        tag = model.model_fields.get("type")
        if tag is not None and step in get_args(tag.annotation):
            return model
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    for argument in get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,):
        if get_origin(argument) in (dict, list, tuple):
            inner = [part for part in get_args(argument) if part is not Ellipsis]
            return inner[-1]
    return annotation
