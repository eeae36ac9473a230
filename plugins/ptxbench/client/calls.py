"""The service's operations as requests, whoever sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from ptxbench.client.retrying import ServiceError
from ptxbench.client.shapes import MOST_WAIT_S, Submission, TaskKind
from ptxbench.trace.solution import Binding, BuildSpec, Solution, SourceFile, SourceLanguage

POLL_S = 30.0
"""How long one long-poll waits. Proxies commonly end requests that are silent for a minute."""

SolutionLike = Solution | Mapping[str, Any]
Read = TypeVar("Read")


class Call(NamedTuple):
    """A request."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: bytes | None = None
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
    """``options``: further fields of ``shapes.Submission``. Raises ServiceError for others, which would be passed over
    at the service, and for what JSON cannot hold."""
    unknown = [name for name in options if name not in Submission.model_fields]
    if unknown:
        known = ", ".join(name for name in Submission.model_fields if name not in ("solution", "workload_uuids"))
        raise ServiceError(f"/{kind}: expected fields out of {known}; found {unknown[0]!r}")
    document = solution.model_dump(mode="json") if isinstance(solution, Solution) else dict(solution)
    body: dict[str, Any] = {"solution": document, **options}
    if workload_uuids is not None:
        body["workload_uuids"] = list(workload_uuids)
    return Call("POST", f"/{kind}", body=_encoded(body))


def task(task_id: str, timeout_s: float, *, detail: bool) -> Call:
    """One task, as it is, or once it has finished if that is within ``timeout_s`` seconds."""
    _expect_time(timeout_s)
    params = {"timeout": f"{timeout_s:g}"} if timeout_s else {}
    if detail:
        params["detail"] = "true"
    return Call("GET", _path("tasks", task_id), params=params, wait_s=timeout_s)


def tasks(task_ids: Sequence[str], timeout_s: float) -> Call:
    """Several tasks, once all have finished if that is within ``timeout_s`` seconds."""
    _expect_time(timeout_s)
    body = {"task_ids": list(task_ids), "timeout": timeout_s}
    return Call("POST", "/tasks/batch", body=_encoded(body), wait_s=timeout_s)


def get(*parts: str) -> Call:
    """``/PART/PART``."""
    return Call("GET", _path(*parts))


def read(shape: type[Read], content: bytes) -> Read:
    """An answer of a service. Raises ServiceError where it is none."""
    adapter: TypeAdapter[Read] = TypeAdapter(shape)
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        (fault, *_) = error.errors(include_url=False, include_input=False)
        place = ".".join(map(str, fault["loc"]))
        raise ServiceError(
            f"expected an answer of a PTXBench service of this version, found {place or 'one'}: {fault['msg']}; check "
            "the URL, and install the same version at both ends",
            200,
        ) from error


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ServiceError(f"expected a body that JSON can hold, found: {error}") from error


def _path(*parts: str) -> str:
    for part in parts:
        if part in ("", ".", ".."):
            raise ServiceError(f"expected an id or a name, found {part!r}")
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _expect_time(timeout_s: float) -> None:
    if not 0 <= timeout_s <= MOST_WAIT_S:
        raise ServiceError(f"timeout_s: expected seconds from 0 to {MOST_WAIT_S:g}, found {timeout_s:g}")
