"""From a place in the device code, as tools print it, to the candidate's lines."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from ptxbench.agent.feedback.parts import Locate
from ptxbench.agent.feedback.wording import excerpt
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import BuildStatus, Candidate
from ptxbench.verdict.kernel_names import is_kernel_of

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.models import PastTurn
    from ptxbench.toolchain import Toolchain
    from ptxbench.toolchain.source_lines import SourceLines


def has_places(past: PastTurn) -> bool:
    """Whether feedback on this turn names places in the code, for which a toolchain is of use."""
    evidence = past.record.evidence
    if evidence is None:
        return False
    return bool(evidence.run.waiting) or any(safety.findings for safety in evidence.safety)


def locator(case: Case, past: PastTurn, toolchain: Toolchain | None) -> Locate:
    """Looks places up by a second build, which is made when the first place is asked for.

    Nothing is located where the toolchain does not build what was judged, or cannot build at all: a line is a help,
    not a result.
    """

    @cache
    def lines() -> SourceLines | None:
        build = past.record.build
        if toolchain is None or past.source is None or build is None or build.status is not BuildStatus.OK:
            return None
        with suppress(InfrastructureError, InputError):
            candidate = Candidate(source=past.source)
            built = toolchain.build(candidate, case.arch)
            if built.build.cubin_sha256 == build.cubin_sha256:
                return toolchain.source_lines(candidate, case.arch, built)
        return None

    def locate(kernel: str, offset: int) -> tuple[int, ...]:
        build = past.record.build
        names = [name for name in build.kernels if is_kernel_of(kernel, (name,))] if build is not None else []
        # Instances of one template are not told apart by a demangled name: a line is given where they agree.
        found = {known.at(name, offset) for name in names if (known := lines()) is not None}
        return found.pop() if len(found) == 1 else ()

    return locate


def place(source: str, lines: tuple[int, ...]) -> str:
    """The lines of a place, quoted, innermost first; empty where none is known."""
    quoted = [excerpt(source, line) for line in lines[:3]]
    return "\n".join(text for text in quoted if text)
