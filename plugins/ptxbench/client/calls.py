"""The service's operations as requests, whoever sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from ptxbench.client.shapes import TaskKind
from ptxbench.trace.solution import Binding, BuildSpec, Solution, SourceFile, SourceLanguage

POLL_S = 30.0
"""How long one long-poll waits. Proxies commonly end requests that are silent for a minute."""

SolutionLike = Solution | Mapping[str, Any]


class Call(NamedTuple):
    """A request."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    """How long the service may take to answer beyond its usual time."""


def cuda_solution(
    definition: str,
    source: str,
    *,
    name: str = "candidate",
    author: str = "ptxbench-client",
    arch: str | None = None,
    entry: str = "kernel.cu::run",
) -> Solution:
    """One CUDA source as a solution of FlashInfer-Trace. Raises pydantic's ValidationError for what is none."""
    return Solution(
        name=name,
        definition=definition,
        author=author,
        spec=BuildSpec(
            language=SourceLanguage.CUDA,
            target_hardware=(f"NVIDIA_{arch.upper()}" if arch else "cuda",),
            entry_point=entry,
            binding=Binding.TVM_FFI,
        ),
        sources=(SourceFile(path=entry.partition("::")[0], content=source),),
    )


def submit(
    kind: TaskKind, solution: SolutionLike, workload_uuids: Sequence[str] | None, options: Mapping[str, Any]
) -> Call:
    """``options``: further fields of ``shapes.Submission``."""
    document = solution.model_dump(mode="json") if isinstance(solution, Solution) else dict(solution)
    body: dict[str, Any] = {"solution": document, **options}
    if workload_uuids is not None:
        body["workload_uuids"] = list(workload_uuids)
    return Call("POST", f"/{kind}", body=body)


def task(task_id: str, timeout_s: float, *, detail: bool) -> Call:
    """One task, as it is, or once it has finished if that is within ``timeout_s`` seconds."""
    params = {"timeout": f"{timeout_s:g}"} if timeout_s else {}
    if detail:
        params["detail"] = "true"
    return Call("GET", f"/tasks/{quote(task_id, safe='')}", params=params, wait_s=timeout_s)


def tasks(task_ids: Sequence[str], timeout_s: float) -> Call:
    """Several tasks, once all have finished if that is within ``timeout_s`` seconds."""
    body = {"task_ids": list(task_ids), "timeout": timeout_s}
    return Call("POST", "/tasks/batch", body=body, wait_s=timeout_s)


def get(*parts: str) -> Call:
    """``/PART/PART``."""
    return Call("GET", "/" + "/".join(quote(part, safe="") for part in parts))
