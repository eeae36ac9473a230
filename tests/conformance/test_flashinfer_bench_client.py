"""A client that was written for FlashInfer-Bench's serve API, and knows nothing of us, finds what it expects.

It talks plain HTTP, and reads every answer with the public package's own models where that is installed. The answers'
fields were read off the public server (flashinfer-bench, ``serve/app.py``, in its versions up to November 2026).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT
from tests.support.service import serving
from tests.unit.factories import GEMM
from tests.unit.trace import public_models

FIELDS = {
    "submitted": {"task_id", "normalized_solution_name"},
    "task": {"task_id", "status", "definition", "solution", "traces", "error", "kind", "logs"},
    "definition": {"name", "description"},
    "health": {
        "status",
        "instance_id",
        "dataset_id",
        "started_at",
        "accepting",
        "workers",
        "healthy_workers",
        "total_workers",
        "queue_size",
        "active_tasks",
    },
    "worker": {"device", "healthy"},
    "log": {"definition", "workload", "solution", "log"},
}
SOURCE = (ROOT / "generated" / "reference" / "h100" / GEMM / "kernel.cu").read_text()
SOLUTION: dict[str, Any] = {
    "name": "my_gemm",
    "definition": GEMM,
    "author": "an agent",
    "spec": {
        "language": "cuda",
        "target_hardware": ["NVIDIA_H100"],
        "entry_point": "kernel.cu::run",
        "dependencies": [],
        "destination_passing_style": True,
        "binding": None,
        "compile_options": {"a field": "of a later version"},
    },
    "sources": [{"path": "kernel.cu", "content": SOURCE}],
    "description": None,
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory, build_cache: Path):
    folder, env = tmp_path_factory.mktemp("service"), {"PTXBENCH_CACHE": str(build_cache)}
    with (
        serving(folder, "--profiler", "replay", env=env) as service,
        httpx.Client(base_url=service.url, trust_env=False, timeout=60.0) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def models():
    return public_models.load()


def polled(http: httpx.Client, task_id: str) -> dict[str, Any]:
    """As a client without long-polls waits."""
    while True:
        answer = http.get(f"/tasks/{task_id}")
        answer.raise_for_status()
        task: dict[str, Any] = answer.json()
        if task["status"] in ("completed", "failed"):
            return task
        assert task["status"] in ("pending", "running")
        time.sleep(0.05)


def test_submit_poll_and_read_the_traces(http, models) -> None:
    answer = http.post("/evaluate", json={"solution": SOLUTION})
    assert answer.status_code == 200
    submitted = answer.json()
    assert submitted.keys() >= FIELDS["submitted"]
    assert submitted["normalized_solution_name"].startswith("my_gemm_")
    task = polled(http, submitted["task_id"])
    assert task.keys() >= FIELDS["task"]
    assert (task["status"], task["error"], task["definition"]) == ("completed", None, GEMM)
    workloads = http.get(f"/definitions/{GEMM}/workloads").json()
    assert [trace["workload"] for trace in task["traces"]] == workloads
    for trace in task["traces"]:
        read = models.Trace.model_validate(trace)
        assert read.evaluation.status.value == "PASSED"
        assert read.solution == task["solution"] == submitted["normalized_solution_name"]
        assert read.evaluation.performance.speedup_factor > 0.9


def test_waiting_for_several_tasks_at_once(http) -> None:
    ids = [
        http.post("/evaluate", json={"solution": {**SOLUTION, "name": name}, "workload_uuids": None}).json()["task_id"]
        for name in ("one", "two", "three")
    ]
    tasks = http.post("/tasks/batch", json={"task_ids": ids, "timeout": 60}).json()
    assert [(task["task_id"], task["status"]) for task in tasks] == [(task_id, "completed") for task_id in ids]
    assert http.get(f"/tasks/{ids[0]}", params={"timeout": 10}).json() == tasks[0]


def test_logs_of_the_tools(http) -> None:
    ncu = {
        "set": "detailed",
        "sections": None,
        "kernel_name": None,
        "page": "details",
        "ncu_path": "ncu",
        "timeout": 60,
    }
    sanitizer = {"sanitizer_types": ["memcheck"], "sanitizer_path": "compute-sanitizer", "timeout": 300}
    for path, options in (("/profile", ncu), ("/sanitize", sanitizer)):
        submitted = http.post(path, json={"solution": SOLUTION, "workload_uuids": None, **options}).json()
        task = polled(http, submitted["task_id"])
        assert (task["status"], task["kind"], task["traces"]) == ("completed", path[1:], None)
        for log in task["logs"]:
            assert log.keys() >= FIELDS["log"]
            assert log["solution"] == submitted["normalized_solution_name"]


def test_what_there_is_to_solve(http, models) -> None:
    definitions = http.get("/definitions").json()
    assert all(one.keys() >= FIELDS["definition"] for one in definitions)
    assert GEMM in [one["name"] for one in definitions]
    models.Definition.model_validate(http.get(f"/definitions/{GEMM}").json())
    for workload in http.get(f"/definitions/{GEMM}/workloads").json():
        models.Workload.model_validate(workload)
        assert http.get(f"/workloads/{workload['uuid']}").json() == workload


def test_health_and_errors(http) -> None:
    health = http.get("/health").json()
    assert health.keys() >= FIELDS["health"]
    assert health["status"] == "ok"
    assert all(worker.keys() >= FIELDS["worker"] for worker in health["workers"])
    answer = http.post("/evaluate", json={"solution": {**SOLUTION, "definition": "none"}})
    assert (answer.status_code, answer.json()["detail"]) == (400, "Definition not found: none")
    answer = http.get("/tasks/none")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Task not found: none")


def test_solutions_of_the_public_models_are_read(http, models) -> None:
    """What that client would send: its own model, dumped."""
    document = {**SOLUTION, "spec": {name: SOLUTION["spec"][name] for name in list(SOLUTION["spec"])[:-1]}}
    sent = models.Solution.model_validate(document).model_dump(mode="json")
    assert http.post("/evaluate", json={"solution": sent}).status_code == 200
