"""What a task is called: a solution's unique name, and the id that the same content always gets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ptxbench import __version__
from ptxbench.client.shapes import Submission, TaskKind
from ptxbench.trace.solution import Solution

ID_DIGITS = 32


def unique_name(solution: Solution) -> str:
    """``NAME_HASH``, as FlashInfer-Bench makes it: eight digits of a SHA-1 over everything but the name."""
    spec = solution.spec
    parts = [solution.definition, spec.language.value, spec.entry_point, spec.binding.value if spec.binding else ""]
    parts += spec.dependencies
    for source in solution.sources:
        parts += (source.path, source.content)
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part.encode())
    return f"{solution.name}_{digest.hexdigest()[:8]}"


def content_hash(kind: TaskKind, submission: Submission, cases: Iterable[str], origin: str) -> str:
    """Hash of everything that decides a task's result.

    ``cases`` are the fingerprints of what it is done on, ``origin`` is the profiler's. Who asks, and how urgently,
    is no part of it; the solution's name is, since traces carry it.
    """
    anybody = {"task_id": None, "client": "", "priority": "interactive", "workload_uuids": None}
    digest = hashlib.sha256()
    for part in (kind, origin, __version__, *cases, submission.model_copy(update=anybody).model_dump_json()):
        data = part.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()
