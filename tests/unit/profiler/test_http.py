"""What a session asks of a service, and what it makes of answers. The service is played."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.http import HttpProfiler
from ptxbench.profiler.ticket import ticket
from ptxbench.profiler.wire import case_digest
from ptxbench.records import Candidate
from ptxbench.toolchain import Built
from tests.unit.factories import make_build, suite_case

CASE = suite_case()
CANDIDATE = Candidate(source="// a kernel")
BUILT = Built(make_build(candidate_sha256=CANDIDATE.sha256), Path("k.so"), CANDIDATE)
HEALTH = {"status": "ok", "workers": [], "queue_size": 0, "origin": "measured", "profiler": "local"}
NOTHING = {"task_id": "t", "status": "completed", "definition": "d", "solution": "s"}


class Service(ThreadingHTTPServer):
    """Answers every task with ``task`` and keeps what was submitted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.health: dict[str, Any] = dict(HEALTH)
        self.task: dict[str, Any] = dict(NOTHING)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._answer(self.server.health if self.path == "/health" else self.server.task)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        self._answer({"task_id": "t", "normalized_solution_name": "s"})

    def _answer(self, document: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def profiler(service: Service) -> Iterator[HttpProfiler]:
    profiler = HttpProfiler(service.url, patience_s=0.2)
    yield profiler
    profiler.close()


def test_what_is_asked_says_what_the_session_has(service: Service, profiler: HttpProfiler) -> None:
    service.task |= {"results": [{"workload_uuid": "u", "arch": "h100"}], "details": [{}]}
    with ticket("me", "bulk"):
        assert profiler.evaluate(CASE, BUILT) is None
    ((path, body),) = service.asked
    assert (path, body["client"], body["priority"], body["complete"]) == ("/evaluate", "me", "bulk", False)
    assert (body["case_sha256"], body["cubin_sha256"]) == (case_digest(CASE), BUILT.build.cubin_sha256)
    assert (body["workload_uuids"], body["arch"]) == ([CASE.workload.uuid], CASE.arch.name)
    assert body["solution"]["sources"][0]["content"] == CANDIDATE.source


def test_sessions_measure_anew_and_read_back_the_same(service: Service) -> None:
    service.task |= {"results": [{"workload_uuid": "u", "arch": "h100"}], "details": [{}]}
    for origin in ("measured", "replayed"):
        service.health["origin"] = origin
        for _ in range(2):
            profiler = HttpProfiler(service.url)
            profiler.evaluate(CASE, BUILT)
            profiler.close()
    names = [body["solution"]["name"] for _, body in service.asked]
    assert len(set(names[:2])) == 2
    assert names[2:] == ["ptxbench"] * 2
    assert [body["complete"] for _, body in service.asked] == [False, False, True, True]


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        ({"fault": {"kind": "oracle_died", "message": "it died"}}, "oracle_died", "at the service: it died"),
        ({"status": "failed", "error": "not built here"}, "service_refused", "not built here"),
        ({}, "service_refused", "expected a result"),
        ({"status": "lost"}, "service_refused", "this version"),
        ({"results": [{"workload_uuid": "u", "arch": "h100"}]}, "service_refused", "expected one answer of memcheck"),
    ],
)
def test_answer_without_a_result_is_a_fault(service: Service, profiler, task, kind, message) -> None:
    service.task |= task
    with pytest.raises(InfrastructureError, match=message) as caught:
        profiler.sanitize(CASE, BUILT, "memcheck")
    assert caught.value.kind == kind


def test_something_else_at_that_address_is_no_service(service: Service, profiler: HttpProfiler) -> None:
    service.health = {"status": "up"}
    with pytest.raises(InfrastructureError, match="check the URL") as caught:
        profiler.evaluate(CASE, BUILT)
    assert caught.value.kind == "service_unavailable"


def test_a_run_that_ends_waits_for_nothing(service: Service) -> None:
    service.task["status"] = "running"
    profiler = HttpProfiler(service.url, stopped=lambda: bool(service.asked))
    with pytest.raises(InfrastructureError) as caught:
        profiler.evaluate(CASE, BUILT)
    assert caught.value.kind == "stopped"
    profiler.close()
