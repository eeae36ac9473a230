"""What a profiler on another machine is asked, and what it answers.

A request carries the source, never an object: whoever answers builds it with a toolchain of its own, and the hash of
the device code says whether both built the same. Two ways to name the case:

- ``Request.case`` is the case itself, for a peer that trusts whoever asks (a cluster of one user's).
- ``case_digest`` is its fingerprint, for a service that runs the definitions of its own checkout only, since a
  definition's reference is code.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import JsonValue

from ptxbench.cases.case import Case
from ptxbench.cases.collection_case import CollectionCase
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler.protocol import Profiler, SafetyTool
from ptxbench.profiler.ticket import Priority, current_ticket, ticket
from ptxbench.records import (
    BuildStatus,
    Candidate,
    Evidence,
    InfrastructureFault,
    InstructionEvidence,
    Record,
    SafetyEvidence,
    Sha256,
)

if TYPE_CHECKING:
    from ptxbench.cases.arch import Arch
    from ptxbench.toolchain import Built

Operation = Literal["evaluate", "instructions", "sanitize"]
_OF_THIS_MACHINE = {"name", "suite", "variants", "collection_root"}
"""Fields of a case that say where it is kept or how prompts speak of it, and change nothing that is measured."""


class Builder(Protocol):
    """What a request is built with: ``Toolchain``, or whatever builds as it does."""

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """As ``Toolchain.build``."""


class Request(Record):
    """One operation of a ``Profiler`` on one candidate."""

    schema_version: Literal[1] = 1
    operation: Operation
    tool: SafetyTool | None = None
    """Of ``sanitize``; None with the others."""
    case: CollectionCase | Case
    candidate: Candidate
    candidate_sha256: Sha256
    cubin_sha256: Sha256 | None = None
    """Of the asker's own build; None: any build will do."""
    nvcc: str = ""
    """The asker's compiler, for a message about builds that differ."""
    client: str = ""
    priority: Priority = "interactive"


class Answer(Record):
    """What one operation found. One of the fields; none of them: nothing is known (no stored evidence)."""

    schema_version: Literal[1] = 1
    evidence: Evidence | None = None
    instructions: InstructionEvidence | None = None
    safety: SafetyEvidence | None = None
    fault: InfrastructureFault | None = None


def case_digest(case: Case) -> str:
    """Fingerprint of everything in a case that what is measured depends on, the same on every machine."""
    document: dict[str, JsonValue] = case.model_dump(mode="json", exclude=_OF_THIS_MACHINE)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def request_of(operation: Operation, case: Case, built: Built, tool: SafetyTool | None = None) -> Request:
    """The request of whoever has ``built``, in the name of the current ticket.

    Raises InfrastructureError("internal_error") for a build that did not come from a toolchain, which has no source.
    """
    owner = current_ticket()
    candidate = source_of(built)
    return Request(
        operation=operation,
        tool=tool,
        case=case,
        candidate=candidate,
        candidate_sha256=candidate.sha256,
        cubin_sha256=built.build.cubin_sha256,
        nvcc=built.build.toolchain.nvcc,
        client=owner.client,
        priority=owner.priority,
    )


def source_of(built: Built) -> Candidate:
    """What was built. Raises InfrastructureError("internal_error") for a build that did not come from a toolchain."""
    if built.candidate is None:
        raise InfrastructureError(
            "internal_error", "a profiler elsewhere needs the source: expected it beside the build, found none"
        )
    return built.candidate


def build_again(request: Request, toolchain: Builder) -> Built:
    """Build the request's source here.

    Raises InfrastructureError: ``build_mismatch`` where it is not the asker's device code, and as ``Toolchain.build``.
    """
    if request.candidate.sha256 != request.candidate_sha256:
        raise InfrastructureError(
            "build_mismatch",
            f"expected a source of hash {request.candidate_sha256[:16]}, found {request.candidate.sha256[:16]}; "
            "it was changed on the way: send it again",
        )
    try:
        built = toolchain.build(request.candidate, request.case.arch)
    except InputError as error:
        raise InfrastructureError("build_mismatch", str(error)) from error
    expect_same(built, request.cubin_sha256, request.nvcc)
    return built


def expect_same(built: Built, cubin_sha256: str | None, nvcc: str = "") -> None:
    """Check that a build is the asker's. Raises InfrastructureError("build_mismatch")."""
    build = built.build
    if cubin_sha256 is None or build.cubin_sha256 == cubin_sha256:
        return
    found = build.cubin_sha256[:16] if build.cubin_sha256 is not None else f"no object ({build.status.value})"
    raise InfrastructureError(
        "build_mismatch",
        f"expected device code of hash {cubin_sha256[:16]} (nvcc {nvcc or 'unknown'}), found {found} "
        f"(nvcc {build.toolchain.nvcc}); install the same compiler at both ends, or measure where it was built",
    )


def perform(request: Request, profiler: Profiler, toolchain: Builder) -> Answer:
    """Answer a request with a profiler of this machine. A fault is an answer too; nothing is raised for it."""
    try:
        built = build_again(request, toolchain)
        if built.build.status is not BuildStatus.OK:
            raise InfrastructureError("build_mismatch", f"nothing was built here: {built.build.status.value}")
        with ticket(request.client, request.priority):
            return Answer(**_found(request, profiler, built))
    except InfrastructureError as error:
        return Answer(fault=InfrastructureFault(kind=error.kind, message=str(error)))


def _found(request: Request, profiler: Profiler, built: Built) -> dict[str, Any]:
    if request.operation == "evaluate":
        return {"evidence": profiler.evaluate(request.case, built)}
    if request.operation == "instructions":
        return {"instructions": profiler.instructions(request.case, built)}
    return {"safety": profiler.sanitize(request.case, built, request.tool or "memcheck")}


def unwrap(answer: Answer) -> Answer:
    """The answer, if it is one. Raises the InfrastructureError that it carries."""
    if answer.fault is not None:
        raise InfrastructureError(answer.fault.kind, answer.fault.message)
    return answer
