"""What is said of a task and of the service: JSON in the shapes of ``ptxbench.client.shapes``."""

from __future__ import annotations

import json
from typing import Any

from ptxbench.service.peer import State

_UNFINISHED = b'"traces":null,"logs":null,"error":null,"fault":null,"results":[]}'


def task_answer(
    task_id: str, status: str, about: tuple[str, str, str], result: bytes | None, details: bytes | None = None
) -> bytes:
    """JSON of ``Task``.

    ``about``: kind, definition and normalized name. ``result``: JSON object of the fields that the evaluation fills;
    None as long as there are none. ``details``: JSON of the evidence; None leaves it out.
    """
    kind, definition, solution = about
    head = {"task_id": task_id, "status": status, "kind": kind, "definition": definition, "solution": solution}
    rest = result[1:] if result else _UNFINISHED
    if details is not None:
        rest = rest[:-1] + b',"details":' + details + b"}"
    return json.dumps(head).encode()[:-1] + b"," + rest


def health_answer(peer: State, profiler: str, store_fault: str, *, accepting: bool) -> dict[str, Any]:
    """The fields of ``ServiceHealth`` that follow from the profiler's and the store's state.

    ``profiler`` is the kind that was asked for; ``store_fault`` says why nothing can be stored, or nothing.
    """
    health = peer.health
    devices = list(health.get("devices") or ())
    workers = [{"device": device["name"], "healthy": device.get("state") in ("ready", "busy")} for device in devices]
    if not workers:
        name = (health.get("device") or {}).get("name") or health.get("kind") or profiler
        workers = [{"device": name, "healthy": peer.ready and not peer.fault}]
    healthy = sum(worker["healthy"] for worker in workers)
    whole = healthy == len(workers) and not store_fault
    status = "ok" if whole else "degraded" if healthy else "unavailable"
    return {
        "status": status if accepting else "draining",
        "workers": workers,
        "healthy_workers": healthy,
        "total_workers": len(workers),
        "profiler": health.get("kind") or profiler,
        "origin": peer.origin,
        "device": health.get("device"),
        "devices": devices,
        "message": store_fault or peer.fault or health.get("message", ""),
    }
