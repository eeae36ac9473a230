"""What a run folder is a run of: kept in its ``run.json``, so that two protocols never mix in one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, JsonValue

from ptxbench.errors import InputError
from ptxbench.records import Record, Sha256
from ptxbench.records.base import Turns

if TYPE_CHECKING:
    from ptxbench.cases import Case

Level = Literal["params", "templates", "full"]
SHOWN = 80
"""Characters of a setting in a message."""


class ModelTerms(Record):
    """How a language model is asked in a run, from its first session on: under one name there is one model."""

    sent: dict[str, JsonValue]
    """As ``Exchange.sent``: everything in a request beside messages and credentials."""
    knowledge: Level
    """How much of the knowledge packs its prompts hold."""
    conditions: dict[str, JsonValue] = Field(default_factory=dict)
    """What its prompts hold beside that: retrieved notes, expert guidance, the task of a teacher."""


class RunIdentity(Record):
    """The content of ``run.json``."""

    schema_version: Literal[1] = 1
    created_at: str
    """UTC, ISO 8601."""
    ptxbench: str
    """Version that created the folder."""
    suites: dict[str, Sha256]
    """Name -> ``suite_identity`` of every suite that has turns here."""
    turns: dict[str, Turns] = Field(default_factory=dict)
    """Model -> turns that each of its trajectories was given, the most of all sessions. Rates count turns that never
    happened, so whoever repeats the run must know how many there could have been."""
    models: dict[str, ModelTerms] = Field(default_factory=dict)
    """Language model -> how it is asked in this run."""
    imported: str = ""
    """Name of the file with somebody else's results that this is; empty for a run of ours, which alone goes on."""


class Session(NamedTuple):
    """What one session brings to a run."""

    suites: Mapping[str, str]
    """Name -> ``suite_identity``."""
    turns: Mapping[str, int] = {}
    """Model -> turns that each of its trajectories is given."""
    models: Mapping[str, ModelTerms] = {}
    """Language model -> how it would be asked now."""


def joined(run: str, identity: RunIdentity, session: Session) -> RunIdentity:
    """The identity of a run in which the session takes part.

    Raises InputError where its turns could not be mixed with those of the run: a suite of other content, a model that
    would be asked otherwise. ``run`` is how the run is called in messages.
    """
    if identity.imported:
        raise InputError(
            f"--run {run}: expected a run of ours, found results of somebody else, imported from {identity.imported}; "
            "they can be reported, not continued: choose another --run"
        )
    for name, sha256 in session.suites.items():
        known = identity.suites.get(name, sha256)
        if known != sha256:
            raise InputError(
                f"--run {run}: expected the suite {name!r} as it was when this run began ({known[:12]}), found "
                f"other content ({sha256[:12]}); its turns cannot be mixed: restore the suite or choose another --run"
            )
    for name, terms in session.models.items():
        _refuse_other_terms(run, name, identity.models.get(name, terms), terms)
    most = {model: max(count, identity.turns.get(model, 0)) for model, count in session.turns.items()}
    changes = {
        "suites": {**identity.suites, **session.suites},
        "turns": {**identity.turns, **most},
        "models": {**session.models, **identity.models},
    }
    return identity.model_copy(update=changes)


def _refuse_other_terms(run: str, model: str, before: ModelTerms, now: ModelTerms) -> None:
    if before.knowledge != now.knowledge:
        raise InputError(
            f"--run {run}: expected --knowledge {before.knowledge}, with which {model} was asked when this run began, "
            f"found {now.knowledge}; its turns cannot be mixed: resume with --knowledge {before.knowledge}, or choose "
            "another --run"
        )
    for field, values in differences(before.conditions, now.conditions):
        raise InputError(
            f"--run {run}: expected the prompts of {model} to be as when this run began, with {field} {values[0]}, "
            f"found {field} {values[1]}; its turns cannot be mixed: ask with what they began with, or choose another "
            "--run"
        )
    for field, values in differences(before.sent, now.sent):
        raise InputError(
            f"--run {run}: expected the model {model} as it was asked when this run began, with {field} {values[0]}, "
            f"found {field} {values[1]}; two models cannot be mixed under one name: choose another --run, or another "
            "name for the model"
        )


def differences(before: JsonValue, now: JsonValue, field: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
    """Every setting that differs: its name, dotted where it lies within another, and both values as text."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            inner = f"{field}.{name}" if field else name
            if name in before and name in now:
                yield from differences(before[name], now[name], inner)
            else:
                yield inner, (_shown(before, name), _shown(now, name))
    elif before != now:
        yield field, (_text(before), _text(now))


def _shown(settings: Mapping[str, JsonValue], name: str) -> str:
    return _text(settings[name]) if name in settings else "(not sent)"


def _text(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def suite_identity(cases: Iterable[Case]) -> str:
    """Hash of everything that a suite says: definitions, workloads, tolerances, protocol numbers, architectures.

    A turn measured under another content is another experiment, even if its key is the same.
    """
    # Where a collection lies on this machine is no part of what it says.
    content = [
        case.model_dump(mode="json", exclude={"collection_root"})
        for case in sorted(cases, key=lambda case: (case.name, case.arch.name))
    ]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
