"""What a pack claims of its functions (``templates/validation.yaml``) and what was seen of them on hardware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.packs.source import Definition, function_sha256
from ptxbench.records import Record, Sha256
from ptxbench.trace.base import Text
from ptxbench.trace.document import read_json

VALIDATION_FILE = "validation.yaml"
NO_INSTRUCTION = "-"
COMPILED = "compiled"
"""The check of a function that is compiled and disassembled only."""


def _as_list(value: object) -> object:
    # A tuple, since a validator before this one's type takes the value out of JSON's leniency for arrays.
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Words = Annotated[tuple[Text, ...], BeforeValidator(_as_list)]


class Claim(Record):
    """What one function is for, and how that is shown."""

    ptx: Words = ()
    """Instructions that its text holds, ``*`` for what a macro fills in; ``-`` for assembly without an instruction.
    None for arithmetic and host code."""
    sass: Words = ()
    """Instructions of SASS that a kernel using it holds, with the modifiers that matter (more may follow); ``*`` for
    any letters, ``-`` for PTX that becomes no instruction of its own."""
    source: Text
    """Where the rule stands, such as ``PTX ISA 9.0, "mbarrier.init"``."""
    check: Text = COMPILED
    """The check that executes it on hardware or, for arithmetic and host code, on the host; or ``compiled``."""
    use: str = ""
    """Statements of a kernel (of a host function where ``host``) that use it. Variables: see docs/packs.md."""
    pure: bool = False
    """It only computes: memory accesses may move across it. Every other function is tested for holding them."""
    host: bool = False
    """It runs on the host."""
    cluster: bool = False
    """``use`` needs a cluster of two blocks."""


class Claims(RootModel[dict[Text, Claim]]):
    """The content of ``validation.yaml``: function -> claim."""


class Executed(Record):
    """A function that a check executed."""

    sha256: Sha256
    """Of the function's code and of all of the pack that it uses, as it was then."""
    check: str
    passed: bool


class PackEvidence(Record):
    """One run of a pack's checks on a device: ``tests/evidence/packs_<arch>.json``."""

    schema_version: Literal[1] = 1
    device: str
    driver: str
    cuda: str
    date: str
    functions: dict[str, Executed] = Field(default_factory=dict)


def load_claims(folder: Path) -> dict[str, Claim]:
    """Read ``validation.yaml`` of a pack's folder.

    Raises:
        InputError: no such file, or one that breaks the schema.
    """
    return read_yaml(folder / "templates" / VALIDATION_FILE).parse(Claims).root


def load_evidence(root: Path, arch: str) -> PackEvidence | None:
    """The committed run on hardware of an architecture's checks, if there is one.

    Raises:
        InputError: a file that is unreadable, no JSON, or breaks the schema.
    """
    path = root / "tests" / "evidence" / f"packs_{arch}.json"
    return read_json(path).parse(PackEvidence) if path.is_file() else None


def status(
    name: str, claim: Claim, definitions: Iterable[Definition], evidence: PackEvidence | None
) -> tuple[bool, str]:
    """Whether a function was executed, as it is now, with a check that passed; and that in words."""
    executed = evidence.functions.get(name) if evidence else None
    if executed is None or evidence is None or claim.check == COMPILED:
        return False, "compiled"
    if executed.sha256 != function_sha256(definitions, name):
        return False, "compiled, not executed since its text changed"
    if executed.check != claim.check:
        return False, f"compiled, not executed by {claim.check}"
    if not executed.passed:
        return False, f"failed on {evidence.device}, {evidence.date}"
    return True, f"executed: {evidence.device}, {evidence.date}"


def executed_share(statuses: Mapping[str, tuple[bool, str]]) -> float:
    """Share of functions that were executed, from 0 to 1."""
    return sum(done for done, _ in statuses.values()) / len(statuses) if statuses else 0.0


def gather(
    results: Mapping[str, bool], claims: Mapping[str, Claim], definitions: Iterable[Definition]
) -> dict[str, Any]:
    """What ``PackEvidence.functions`` holds after the checks ``results`` (check -> passed) ran."""
    known = tuple(definitions)
    return {
        name: Executed(sha256=function_sha256(known, name), check=claim.check, passed=results[claim.check])
        for name, claim in claims.items()
        if claim.check in results
    }
