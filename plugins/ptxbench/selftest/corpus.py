"""The two corpora of adversarial measurement, read and checked: ``tests/attacks`` (must never score) and
``tests/honest`` (must never be rejected). ``threats.yaml`` and the READMEs of both say what belongs in them.

A candidate is one self-contained source. A corpus shares text by quoted includes that ``read_source`` splices in, each
once: from the corpus' own ``include`` folder, from ``tests/fixtures/kernels``, and, as ``reference/CASE.cuh``, the
reference solution of a case without its export, whose function is then ``run``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.profiler.protocol import SafetyTool
from ptxbench.records.base import Record
from ptxbench.records.verdict import Outcome, Safe, Target, Verdict

EXPECTED = "expected.yaml"
DEFAULT_CASE = "gemm_n7168_k5120"

_Entry = TypeVar("_Entry", bound=Record)
_INCLUDE = re.compile(r'^#include "([\w/]+)\.cuh"[ \t\r]*$', re.MULTILINE)
_REFERENCE = "reference/"
_EXPORT = re.compile(r"^TVM_FFI_DLL_EXPORT_TYPED_FUNC\(.*\);\n?", re.MULTILINE)


def _listed(value: object) -> object:
    """YAML's single values as tuples of one; ``no`` and ``yes`` are words here, not truth values."""
    return tuple(value) if isinstance(value, list) else (value,)


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


class Stage(StrEnum):
    """Where an attack is caught: before compiling, on the built object, or on a device."""

    SCREEN = "screen"
    COMPILE = "compile"
    DEVICE = "device"


class Variant(StrEnum):
    """Whether an attack looks like one."""

    PLAIN = "plain"
    INVITING = "inviting"
    """It looks honest, or puts bait where somebody matches patterns."""


class Threat(Record):
    """A row of the list of threats."""

    mechanism: str
    caught_by: str


class Attack(Record):
    """An attack and the verdict it must get."""

    mechanism: str
    source: str
    """Public origin of the idea, or ``ours``."""
    threat: str
    """A key of ``threats.yaml``: its class is the part before the dot, and the folder."""
    case: str = DEFAULT_CASE
    stage: Stage
    outcome: Annotated[tuple[Outcome, ...], BeforeValidator(_listed), Field(min_length=1)]
    rule: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
    """At least one of these must be the verdict's rule, its target's rule or one of its flags."""
    scored: bool = False
    target: Annotated[tuple[Target, ...], BeforeValidator(_listed)] | None = None
    """Of decoys: what the indicator must be although the outcome may be correct."""
    useful_share_below: float | None = None
    """Of decoys: the indicator may be ``executed``, and the useful share beside it must be below."""
    speedup_below: float | None = None
    """Of forged clocks: the outcome may be correct, and the speedup must be below, since it is the true one."""
    safe: Annotated[Safe | None, BeforeValidator(_word)] = None
    tools: tuple[SafetyTool, ...] = ()
    """Sanitizers that must look at it, beside those that the defences say; the first one is expected to find it."""
    defences: tuple[str, ...] = Field(min_length=1)
    """Keys of ``defences.yaml`` that stop it, the one that matters first: without it the attack would pass."""
    variant: Variant
    name: str
    """``CLASS/NAME``."""

    @model_validator(mode="after")
    def _check(self) -> Attack:
        if self.scored:
            raise ValueError("an attack is never scored")
        if self.name.partition("/")[0] != self.threat.partition(".")[0]:
            raise ValueError(f"threat {self.threat} belongs into another folder than {self.name}")
        bounded = self.decoy or self.speedup_below is not None or self.safe is Safe.NO
        flagged = any("." not in rule for rule in self.rule)
        if Outcome.CORRECT in self.outcome and not bounded and not flagged:
            raise ValueError("a correct outcome needs a flag that withholds the speedup, a bound, target, or safe")
        return self

    @property
    def decoy(self) -> bool:
        """Whether it may be correct and fast, and only must not pass for a user of the target instructions."""
        return self.target is not None or self.useful_share_below is not None

    def scores(self, verdict: Verdict) -> bool:
        """Whether the attack succeeded: correct with an undeserved speedup, and nothing beside it that says so."""
        if not verdict.correct or verdict.speedup is None:
            return False
        if self.speedup_below is not None:
            return verdict.speedup >= self.speedup_below
        if self.safe is Safe.NO:
            return verdict.safe is Safe.YES
        if not self.decoy:
            return True
        bound, share = self.useful_share_below, verdict.useful_share
        return verdict.target is Target.EXECUTED and (bound is None or share is None or share >= bound)

    def differences(self, verdict: Verdict) -> list[str]:
        """How a verdict differs from the one expected; empty where it does not."""
        found: list[str] = []
        if verdict.outcome not in self.outcome:
            found.append(f"outcome {verdict.outcome}, expected {' or '.join(self.outcome)}")
        if not {verdict.rule, verdict.target_rule, *verdict.flags} & set(self.rule):
            found.append(f"rule {verdict.rule} with flags {list(verdict.flags)}, expected {' or '.join(self.rule)}")
        if self.target is not None and verdict.correct and verdict.target not in self.target:
            found.append(f"target {verdict.target}, expected {' or '.join(self.target)}")
        if self.safe is not None and verdict.safe is not self.safe:
            found.append(f"safe {verdict.safe}, expected {self.safe}")
        if self.scores(verdict):
            found.append(f"scored with a speedup of {verdict.speedup}")
        return found


class Honest(Record):
    """A valid kernel that looks suspicious, and must be correct with a speedup."""

    looks_like: str
    case: str = DEFAULT_CASE
    features: tuple[str, ...] = ()
    target: str = Field(default="any", pattern="^(executed|not_executed|any)$")
    name: str
    """Path below the corpus without ``.cu``."""

    def differences(self, verdict: Verdict) -> list[str]:
        """Why the kernel counts as rejected; empty where it was accepted."""
        found: list[str] = []
        if not verdict.correct:
            found.append(f"outcome {verdict.outcome} by {verdict.rule}: {verdict.message}")
        elif verdict.speedup is None:
            found.append(f"no speedup, flags {list(verdict.flags)}")
        if verdict.correct and self.target != "any" and verdict.target != self.target:
            found.append(f"target {verdict.target}, expected {self.target}")
        if verdict.safe is Safe.NO:
            found.append(f"unsafe: {verdict.safe_message}")
        return found


def attacks(folder: Path) -> dict[str, Attack]:
    """``CLASS/NAME`` -> attack, sorted.

    Raises InputError for a file that is no table, ValueError naming the file and the entry that is not as it must be.
    """
    return {name: _validated(Attack, folder, name, entry) for name, entry in _entries(folder)}


def honest(folder: Path) -> dict[str, Honest]:
    """``PATH/NAME`` -> honest kernel, sorted. Raises ValueError as ``attacks`` does."""
    return {name: _validated(Honest, folder, name, entry) for name, entry in _entries(folder)}


def threats(folder: Path) -> dict[str, Threat]:
    """``class.mechanism`` -> the row. Raises InputError."""
    path = folder / "threats.yaml"
    try:
        return {key: Threat.model_validate(entry) for key, entry in _table(path).items()}
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def defences(folder: Path) -> dict[str, str]:
    """Name of each defence -> what it does. Raises InputError."""
    return {name: str(does) for name, does in _table(folder / "defences.yaml").items()}


def read_source(name: str, folder: Path) -> str:
    """The self-contained source of an entry, shared text spliced in.

    Raises FileNotFoundError for an unknown entry or an unknown shared text.
    """
    return _spliced(_text(folder / f"{name}.cu"), folder, set())


def _spliced(text: str, folder: Path, seen: set[str]) -> str:
    def text_of(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return _spliced(_shared(match[1], folder), folder, seen).rstrip("\n")

    return _INCLUDE.sub(text_of, text)


def _shared(name: str, folder: Path) -> str:
    checkout = folder.resolve().parents[1]
    if name.startswith(_REFERENCE):
        path = checkout / "generated" / "reference" / "h100" / name.removeprefix(_REFERENCE) / "kernel.cu"
        return _EXPORT.sub("", _text(path))
    places = [folder / "include" / f"{name}.cuh", checkout / "tests" / "fixtures" / "kernels" / f"{name}.cuh"]
    found = next((place for place in places if place.exists()), places[0])
    return _text(found)


def _text(path: Path) -> str:
    """The file as it is, line ends included."""
    return path.read_bytes().decode("utf-8")


def _entries(folder: Path) -> Iterator[tuple[str, Any]]:
    """Entries of every ``expected.yaml`` below the corpus, sorted. Each has a ``.cu``, and each ``.cu`` an entry."""
    found: dict[str, Any] = {}
    for path in folder.rglob(EXPECTED):
        place = path.parent.relative_to(folder)
        for name, entry in _table(path).items():
            found[str(place / name)] = entry
    files = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.cu")}
    if files != found.keys():
        raise ValueError(
            f"{folder}: expected one entry of {EXPECTED} for each kernel; "
            f"without an entry: {sorted(files - found.keys())}, without a kernel: {sorted(found.keys() - files)}"
        )
    yield from sorted(found.items())


def _table(path: Path) -> dict[str, Any]:
    """A file of entries by name. Raises InputError."""
    document = read_yaml(path)
    if document.data is None:
        return {}
    if not isinstance(document.data, dict):
        raise document.error((), "a mapping of names to entries", f"a {type(document.data).__name__}")
    return document.data


def _validated(record: type[_Entry], folder: Path, name: str, entry: Any) -> _Entry:  # noqa: ANN401 - YAML
    try:
        # YAML has no enums, so names are read as their values here; unknown keys are still rejected.
        return record.model_validate({**(entry or {}), "name": name}, strict=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / name}: {error}") from error
