"""The HTTP face: FlashInfer-Bench's serve API, with our operations and fields beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from pydantic import BaseModel, ValidationError

from ptxbench import __version__
from ptxbench.client.shapes import (
    MOST_WAIT_S,
    BatchRequest,
    DefinitionInfo,
    ServiceHealth,
    Submission,
    Submitted,
    Task,
    TaskKind,
)
from ptxbench.errors import InputError
from ptxbench.service.broker import Broker, RefusedError
from ptxbench.service.settings import MAX_ANSWER_BYTES

_SUBMISSIONS: dict[TaskKind, str] = {
    "evaluate": "Have a solution measured and judged",
    "profile": "Have the executed instructions of a solution counted",
    "sanitize": "Have compute-sanitizer look at a solution",
    "debug": "Find out where a solution's call ends or waits",
}


def create_app(broker: Broker) -> FastAPI:
    """The application over a broker that has been started; it closes the broker when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        yield
        await broker.close()

    app = FastAPI(
        title="PTXBench service",
        version=__version__,
        description="Measures and judges CUDA kernels, in the shapes of FlashInfer-Bench's serve API (docs/serve.md).",
        lifespan=lifespan,
        redoc_url=None,
    )
    for kind, summary in _SUBMISSIONS.items():
        # The body is read by hand: as a parameter it would be parsed twice, on the loop that all submissions share.
        app.add_api_route(
            f"/{kind}",
            _submitting(broker, kind),
            methods=["POST"],
            summary=summary,
            operation_id=kind,
            responses={200: {"model": Submitted}, **_ERRORS},
            openapi_extra={"requestBody": _body(Submission)},
        )
    _add_tasks(app, broker)
    _add_catalog(app, broker)
    _add_service(app, broker)
    return app


_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "It asks for what is not here"},
    409: {"description": "The task_id has other content"},
    422: {"description": "The body has another shape"},
    429: {"description": "The queue is full; Retry-After says when to come again"},
    503: {"description": "The service starts, drains or cannot write; Retry-After says when to come again"},
}


def _body(model: type[BaseModel]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}


def _submitting(broker: Broker, kind: TaskKind) -> Callable[[Request], Awaitable[Response]]:
    async def submit(request: Request) -> Response:
        try:
            found = await broker.submit(kind, await request.body())
        except ValidationError as error:
            return _unreadable(error)
        except InputError as error:
            raise HTTPException(400, str(error)) from error
        except RefusedError as error:
            headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s is not None else None
            raise HTTPException(error.status, str(error), headers) from error
        answer = {
            "task_id": found.task_id,
            "normalized_solution_name": found.solution,
            "status": found.status,
            "created": found.created,
        }
        return _json(json.dumps(answer).encode())

    return submit


def _add_tasks(app: FastAPI, broker: Broker) -> None:
    @app.get("/tasks/{task_id}", summary="A task and its results", responses={200: {"model": Task}})
    async def task(
        request: Request,
        task_id: str,
        timeout: Annotated[float, Query(ge=0, le=MOST_WAIT_S, description="seconds to wait for its end")] = 0.0,
        detail: Annotated[bool, Query(description="with the evidence behind the results")] = False,
    ) -> Response:
        await _ended(broker, request, [task_id], timeout)
        return _json(broker.view(task_id, detail=detail) or b"null")

    @app.post(
        "/tasks/batch",
        summary="Several tasks",
        responses={200: {"model": list[Task]}},
        openapi_extra={"requestBody": _body(BatchRequest)},
    )
    async def batch(request: Request) -> Response:
        try:
            asked = BatchRequest.model_validate_json(await request.body())
        except ValidationError as error:
            return _unreadable(error)
        await _ended(broker, request, asked.task_ids, asked.timeout)
        tasks, size = [], 0
        for task_id in asked.task_ids:
            tasks.append(broker.view(task_id) or b"null")
            size += len(tasks[-1])
            if size > MAX_ANSWER_BYTES:
                detail = f"expected tasks of at most {MAX_ANSWER_BYTES} bytes in all, found more; ask for fewer at once"
                raise HTTPException(400, detail)
        return _json(b"[" + b",".join(tasks) + b"]")


async def _ended(broker: Broker, request: Request, task_ids: Sequence[str], timeout_s: float) -> None:
    """Once all of these tasks have ended, the time is over, or whoever asked is gone. Raises 404."""
    for task_id in task_ids:
        if broker.status(task_id) is None:
            raise HTTPException(404, f"Task not found: {task_id}")
    if timeout_s <= 0:
        return
    gone = asyncio.ensure_future(_gone(request))
    try:
        await broker.wait(task_ids, timeout_s, gone)
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    """When the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_catalog(app: FastAPI, broker: Broker) -> None:
    catalog = broker.catalog

    @app.get("/definitions", summary="What can be evaluated", responses={200: {"model": list[DefinitionInfo]}})
    async def definitions() -> Response:
        return _json(catalog.definitions)

    @app.get("/definitions/{name}", summary="A definition, as FlashInfer-Trace")
    async def definition(name: str) -> Response:
        return _found(catalog.definition(name), f"Definition not found: {name}")

    @app.get("/definitions/{name}/workloads", summary="A definition's workloads, as FlashInfer-Trace")
    async def workloads(name: str) -> Response:
        return _found(catalog.workloads(name), f"Definition not found: {name}")

    @app.get("/workloads/{uuid}", summary="A workload, as FlashInfer-Trace")
    async def workload(uuid: str) -> Response:
        return _found(catalog.workload(uuid), f"Workload not found: {uuid}")


def _add_service(app: FastAPI, broker: Broker) -> None:
    @app.get("/health", summary="What the service does now", responses={200: {"model": ServiceHealth}})
    async def health() -> Response:
        return _json(json.dumps({**broker.health(), "version": __version__}).encode())

    @app.get("/metrics", summary="For Prometheus")
    async def metrics() -> Response:
        broker.update_gauges()
        return Response(broker.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", summary="What there is")
    async def root() -> Response:
        paths = app.openapi()["paths"]
        endpoints = [
            {"method": method.upper(), "path": path, "description": operation["summary"]}
            for path, methods in paths.items()
            for method, operation in methods.items()
        ]
        about = {"name": "PTXBench service", "version": __version__, "docs": "/docs", "endpoints": endpoints}
        return _json(json.dumps(about).encode())


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _found(content: bytes | None, missing: str) -> Response:
    if content is None:
        raise HTTPException(404, missing)
    return _json(content)


def _unreadable(error: ValidationError) -> Response:
    """422, in the form that FastAPI gives it."""
    faults = [
        {"type": fault["type"], "loc": ["body", *fault["loc"]], "msg": fault["msg"]}
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return Response(json.dumps({"detail": faults}), status_code=422, media_type="application/json")
