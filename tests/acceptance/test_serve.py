"""``ptxbench serve`` as its clients meet it: a real process, a real socket, stored evidence behind it."""

import asyncio
import os
import re
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from ptxbench.arguments import TOKEN_VARIABLE
from ptxbench.client import AsyncClient, Client, ServiceError, cuda_solution
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.http import HttpProfiler
from ptxbench.records import Candidate, Outcome, Safe, Target, ToolStatus
from ptxbench.toolchain import Built, Toolchain
from tests.acceptance.parts import SOURCE
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.support.service import Service, serving
from tests.unit.factories import suite_case

GEMM = "gemm_n7168_k5120"
UUID = suite_case(GEMM).workload.uuid
REFERENCE = (ROOT / "generated" / "reference" / "h100" / GEMM / "kernel.cu").read_text()
SCREENED = load("cublas_include")
"""Refused before anything is compiled, so it takes a moment only."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, build_cache: Path):
    folder = tmp_path_factory.mktemp("service")
    with serving(folder, "--profiler", "replay", env={"PTXBENCH_CACHE": str(build_cache)}) as service:
        yield service


@pytest.fixture
def client(service: Service):
    with Client(service.url, patience_s=10.0) as client:
        yield client


def screened(name: str):
    return cuda_solution(GEMM, SCREENED, name=name, arch="h100")


def slow(name: str):
    """Nobody has built it, so a compiler takes a second or two; nor has anybody measured it."""
    return cuda_solution(GEMM, f"// {name}\n{SOURCE}", name=name, arch="h100")


def test_reference_is_judged_as_it_is_without_a_service(client) -> None:
    submitted = client.evaluate(cuda_solution(GEMM, REFERENCE, arch="h100"))
    task = client.wait(submitted.task_id, 60.0, detail=True)
    assert (task.status, task.error, task.fault) == ("completed", None, None)
    (result,) = task.results
    assert (result.workload_uuid, result.arch, result.origin) == (UUID, "h100", "replayed")
    assert result.verdict is not None
    verdict = result.verdict
    assert (verdict.outcome, verdict.target, verdict.safe) == (Outcome.CORRECT, Target.EXECUTED, Safe.YES)
    (trace,) = task.traces or []
    assert trace["solution"] == submitted.normalized_solution_name == task.solution
    assert trace["evaluation"]["performance"]["speedup_factor"] == verdict.speedup
    (detail,) = task.details or []
    assert detail.evidence is not None
    assert detail.build is not None
    assert detail.evidence.cubin_sha256 == detail.build.cubin_sha256


def test_other_operations_stand_alone(client) -> None:
    solution = cuda_solution(GEMM, REFERENCE, arch="h100")
    counts = client.wait(client.profile(solution).task_id, 60.0)
    assert counts.results[0].instructions is not None
    assert counts.results[0].instructions.status is ToolStatus.OK
    assert counts.logs is not None
    assert "HGMMA" in counts.logs[0].log
    safety = client.wait(client.sanitize(solution, sanitizer_types=["memcheck", "racecheck"]).task_id, 60.0)
    assert [(one.tool, one.status) for one in safety.results[0].safety] == [
        ("memcheck", ToolStatus.OK),
        ("racecheck", ToolStatus.UNAVAILABLE),
    ]
    assert counts.kind == "profile"
    hangs = client.wait(client.debug(cuda_solution(GEMM, load("endless"), arch="h100")).task_id, 60.0, detail=True)
    assert hangs.results[0].verdict is not None
    assert hangs.results[0].verdict.outcome is Outcome.TIMEOUT
    assert hangs.details is not None
    assert hangs.details[0].run is not None
    assert hangs.logs is not None
    assert "timeout" in hangs.logs[0].log


def test_same_content_is_one_task_and_another_name_is_another(client) -> None:
    first = client.evaluate(screened("once"))
    again = client.evaluate(screened("once"), client="somebody else", priority="bulk")
    other = client.evaluate(screened("other"))
    assert first.created
    assert (again.task_id, again.created) == (first.task_id, False)
    assert other.created
    assert other.task_id != first.task_id


def test_an_id_of_ones_own_names_one_content(client) -> None:
    assert client.evaluate(screened("own"), task_id="run7:turn3").task_id == "run7:turn3"
    assert not client.evaluate(screened("own"), task_id="run7:turn3").created
    with pytest.raises(ServiceError, match="expected the content that was submitted first") as caught:
        client.evaluate(screened("changed"), task_id="run7:turn3")
    assert caught.value.status == 409


def test_nobody_knows_is_no_result(client) -> None:
    task = client.wait(client.evaluate(slow("unknown")).task_id, 60.0)
    assert (task.status, task.traces) == ("failed", None)
    assert "nobody knows" in (task.error or "")
    assert task.results[0].verdict is not None
    assert task.results[0].verdict.outcome is Outcome.UNKNOWN


def test_what_cannot_be_built_here_says_why(client) -> None:
    solution = screened("triton").model_dump(mode="json")
    solution["spec"]["language"] = "triton"
    task = client.wait(client.evaluate(solution).task_id, 30.0)
    assert (task.status, task.error) == ("failed", "the solution cannot be built here: it is written in triton")


def test_compile_error_is_a_result_with_the_compilers_words(client) -> None:
    task = client.wait(client.evaluate(cuda_solution(GEMM, load("compile_error"), arch="h100")).task_id, 60.0)
    assert task.status == "completed"
    assert task.traces is not None
    assert task.traces[0]["evaluation"]["status"] == "COMPILE_ERROR"
    assert "error" in task.results[0].message


def test_faults_of_requests_have_their_status(service) -> None:
    good = {"solution": screened("x").model_dump(mode="json")}
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        assert http.get("/tasks/none").status_code == 404
        assert http.post("/tasks/batch", json={"task_ids": ["none"]}).json() == {"detail": "Task not found: none"}
        assert http.get("/definitions/none").status_code == http.get("/workloads/none").status_code == 404
        unknown = {**good, "solution": {**good["solution"], "definition": "none"}}
        answer = http.post("/evaluate", json=unknown)
        assert (answer.status_code, answer.json()) == (400, {"detail": "Definition not found: none"})
        assert http.post("/evaluate", json={**good, "workload_uuids": ["none"]}).status_code == 400
        assert http.post("/evaluate", json={**good, "atol": 0.5}).status_code == 400
        for body in (b"", b"[]", b"{", b'{"solution": {}}', b"\xff"):
            answer = http.post("/evaluate", content=body)
            assert (answer.status_code, "detail" in answer.json()) == (422, True)
        assert http.get("/tasks/none?timeout=-1").status_code == 422
        assert http.post("/evaluate", content=b"x" * (5 << 20)).status_code == 413
        assert http.get("/evaluate").status_code == 405


def test_long_poll_answers_when_the_task_ends_and_not_before(client) -> None:
    quick = client.evaluate(screened("poll"))
    started = time.monotonic()
    assert client.task(quick.task_id, 30.0).finished
    assert time.monotonic() - started < 10.0
    later = client.evaluate(slow("poll"))
    assert not client.task(later.task_id, 0.05).finished
    ended = client.tasks([later.task_id, quick.task_id], 60.0)
    assert [task.task_id for task in ended] == [later.task_id, quick.task_id]
    assert all(task.finished for task in ended)


def test_asynchronous_client_does_the_same(service) -> None:
    async def talk() -> None:
        async with AsyncClient(service.url, patience_s=10.0) as client:
            names = [f"async{number}" for number in range(8)]
            submitted = await asyncio.gather(*(client.evaluate(screened(name)) for name in names))
            tasks = await asyncio.gather(*(client.wait(one.task_id, 30.0) for one in submitted))
            assert [task.solution for task in tasks] == [one.normalized_solution_name for one in submitted]
            verdicts = [task.results[0].verdict for task in tasks]
            assert {verdict and verdict.outcome for verdict in verdicts} == {Outcome.SCREENED}
            assert (await client.health()).status == "ok"
            assert GEMM in [one.name for one in await client.definitions()]
            assert (await client.workload(UUID))["uuid"] == UUID
            assert (await client.definition(GEMM))["name"] == GEMM
            assert (await client.workloads(GEMM))[0]["uuid"] == UUID
            with pytest.raises(ServiceError, match="Task not found"):
                await client.task("none")

    asyncio.run(talk())


def test_service_describes_itself(service, client) -> None:
    health = client.health()
    assert (health.status, health.profiler, health.origin, health.accepting) == ("ok", "replay", "replayed", True)
    assert health.workers[0].healthy
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        listed = {(one["method"], one["path"]) for one in http.get("/").json()["endpoints"]}
        operations = {
            (method.upper(), path)
            for path, methods in http.get("/openapi.json").json()["paths"].items()
            for method in methods
        }
        metrics = http.get("/metrics").text
    assert listed == operations
    assert {("POST", "/evaluate"), ("POST", "/debug"), ("GET", "/tasks/{task_id}"), ("POST", "/tasks/batch")} <= listed
    assert re.search(r'^ptxbench_tasks_ended_total\{kind="evaluate",status="completed"\} [1-9]', metrics, re.MULTILINE)
    assert "ptxbench_submit_seconds_bucket" in metrics


def test_profiler_over_http_refuses_other_device_code_and_other_cases(service, build_cache) -> None:
    profiler, case = HttpProfiler(service.url), suite_case(GEMM)
    built = Toolchain.discover(cache_dir=build_cache).build(Candidate(source=REFERENCE), case.arch)
    evidence = profiler.evaluate(case, built)
    assert evidence is not None
    assert evidence.cubin_sha256 == built.build.cubin_sha256
    (cubin,) = built.build.cubins
    other = built.build.model_copy(update={"cubins": (cubin.model_copy(update={"sha256": "0" * 64}),)})
    with pytest.raises(InfrastructureError, match="install the same compiler") as caught:
        profiler.evaluate(case, built._replace(build=other))
    assert caught.value.kind == "build_mismatch"
    with pytest.raises(InfrastructureError, match="use the same checkout") as caught:
        profiler.evaluate(case.model_copy(update={"trials": 1}), built)
    assert caught.value.kind == "service_refused"
    with pytest.raises(InfrastructureError, match="needs the source"):
        profiler.evaluate(case, Built(built.build, built.so_path))
    profiler.close()


def test_profiler_over_http_without_a_service_is_a_fault_of_the_machinery() -> None:
    profiler = HttpProfiler("http://127.0.0.1:9", patience_s=0.2)
    with pytest.raises(InfrastructureError, match="start `ptxbench serve`") as caught:
        profiler.health()
    assert caught.value.kind == "service_unavailable"


def evaluation_process(service: Service) -> int:
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
    (child,) = [int(child) for child in children]
    return child


def test_a_dead_evaluation_process_costs_time_and_nothing_else(service, client) -> None:
    victim = client.evaluate(slow("worker dies"))
    while client.task(victim.task_id).status == "pending":
        time.sleep(0.01)
    os.kill(evaluation_process(service), signal.SIGKILL)
    quick = client.evaluate(screened("behind it"))
    (result,) = client.wait(victim.task_id, 60.0).results
    assert result.verdict is not None
    assert result.verdict.outcome is Outcome.UNKNOWN
    assert client.wait(quick.task_id, 60.0).status == "completed"
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        assert "ptxbench_evaluation_restarts_total 1.0" in http.get("/metrics").text


def test_end_in_good_order_and_what_the_next_service_finds(tmp_path: Path, build_cache: Path) -> None:
    """SIGTERM lets what runs end and keeps what waits; a full queue says when to come again; a token is asked for."""
    env = {"PTXBENCH_CACHE": str(build_cache), TOKEN_VARIABLE: "secret"}
    options = ("--profiler", "replay", "--slots", "1", "--max-queue", "1")
    with serving(tmp_path, *options, env=env) as service:
        with pytest.raises(ServiceError, match="bearer token"), Client(service.url, patience_s=0.1) as stranger:
            stranger.definitions()
        with Client(service.url, token="secret", patience_s=0.1) as client, ThreadPoolExecutor(1) as pool:
            done = client.wait(client.evaluate(screened("before")).task_id, 30.0)
            ids = [client.evaluate(slow(f"drain{number}")).task_id for number in range(3)]  # runs, is next, waits
            with pytest.raises(ServiceError, match="the queue is full") as caught:
                client.evaluate(slow("drain3"))
            assert caught.value.status == 429
            polling = pool.submit(client.task, ids[2], 30.0)
            time.sleep(0.1)
            service.terminate()
            assert service.wait(40.0) == 0
            assert polling.result(5.0).status == "pending"  # answered, not cut off
        statuses = stored_statuses(tmp_path / "store" / "tasks.sqlite")
        assert statuses[done.task_id] == "completed"
        # Unknown, since nobody measured them: that is what a failed task is here.
        assert [statuses[task_id] for task_id in ids] == ["failed", "failed", "pending"]
        service.start()
        with Client(service.url, token="secret") as client:
            assert client.task(done.task_id) == done
            assert not client.evaluate(screened("before")).created
            assert client.wait(ids[2], 60.0).status == "failed"


def stored_statuses(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT id, status FROM tasks"))
