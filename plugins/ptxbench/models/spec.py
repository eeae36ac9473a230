"""What the text of ``--model`` names."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN, slug
from ptxbench.models.catalog import Catalog
from ptxbench.models.entry import EntryFields, ModelEntry
from ptxbench.trace.faults import Problem, did_you_mean, field_name

KNOWN_FORMS = (
    "reference (the hand-written solutions)",
    "file:PATH (one .cu file)",
    "solutions (the CUDA solutions of the collections that --trace-set names)",
    "replay:RUN (the sources of an earlier run; replay:RUN::MODEL if it holds several models)",
    "a name from models.yaml or from your own models file",
    "litellm:PROVIDER/MODEL (any provider that litellm knows)",
    "openai:MODEL@URL (an OpenAI-compatible server, for example openai:NAME@http://127.0.0.1:8000/v1)",
    "command:PROGRAM [ARGS] (a coding agent)",
    "exchange:FOLDER (requests and replies as files)",
)


class FixedSource(NamedTuple):
    """A model that asks nobody: its sources exist already."""

    form: Literal["reference", "file", "replay", "solutions"]
    argument: str = ""
    """Path or run; empty for ``reference`` and ``solutions``."""


def parse_spec(spec: str, catalog: Catalog) -> ModelEntry | FixedSource:
    """The entry or the fixed source that ``spec`` names.

    An entry that is not of the catalogue is called by a slug of the text. Raises InputError for an unknown form or
    name; its message never quotes a URL, which may hold a password.
    """
    if spec == "reference":
        return FixedSource("reference")
    if spec == "solutions":
        return FixedSource("solutions")
    form, _, argument = spec.partition(":")
    argument = argument.strip()
    if argument and form in ("file", "replay"):
        return FixedSource("file" if form == "file" else "replay", argument)
    if argument and form in _READERS:
        return _entry(spec, _READERS[form](argument))
    if NAME_PATTERN.fullmatch(spec):
        if spec in catalog.names:
            return catalog.entry(spec)
        names = (*catalog.names, "reference", "solutions")
        hint = f"{did_you_mean(spec, names)} Known names: {', '.join(names)}."
        raise InputError(f"--model {spec}: {_unknown()}.{hint}")
    shown = spec if "@" not in spec and "://" not in spec else f"{form}:..."
    raise InputError(f"--model {shown}: {_unknown()}")


def _unknown() -> str:
    return f"unknown model; expected one of: {'; '.join(KNOWN_FORMS)}"


def _litellm(argument: str) -> dict[str, object]:
    provider, _, model = argument.partition("/")
    if not provider or not model:
        raise InputError(
            f"--model litellm:{argument}: expected litellm:PROVIDER/MODEL, such as litellm:openai/gpt-6-sol"
        )
    return {"provider": "litellm", "model": argument}


def _openai(argument: str) -> dict[str, object]:
    # The last @ that a URL follows: a model's name may hold one, and so may a URL that we refuse.
    model, _, url = argument.partition("@http")
    if not model or not url:
        raise InputError("--model openai:...: expected openai:MODEL@URL, such as openai:NAME@http://127.0.0.1:8000/v1")
    return {"provider": "openai", "model": model, "api_base": f"http{url}"}


def _command(argument: str) -> dict[str, object]:
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise InputError(
            f"--model command:...: expected a program and arguments as a shell reads them; {error}"
        ) from None
    program = words[0]
    if "/" in program:
        program = str(Path(program).expanduser().absolute())
    return {"provider": "command", "command": (program, *words[1:])}


def _exchange(argument: str) -> dict[str, object]:
    return {"provider": "exchange", "folder": str(Path(argument).expanduser().absolute())}


_READERS: dict[str, Callable[[str], dict[str, object]]] = {
    "litellm": _litellm,
    "openai": _openai,
    "command": _command,
    "exchange": _exchange,
}


def _entry(spec: str, fields: dict[str, object]) -> ModelEntry:
    try:
        return ModelEntry.model_validate(fields | {"name": slug(spec)})
    except ValidationError as failure:
        problem = Problem(failure.errors(include_url=False)[0], EntryFields, fields)
        form = spec.partition(":")[0]
        raise InputError(
            f"--model {form}:...: `{field_name(problem.loc)}`: expected {problem.expected}; found {problem.found}"
        ) from None
