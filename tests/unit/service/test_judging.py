"""What a task ends with where the machinery fails, or nobody can tell. What it finds otherwise: tests/acceptance."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from ptxbench.agent.evaluation import Evaluator
from ptxbench.client import cuda_solution
from ptxbench.client.shapes import Task, TaskDetail, TaskKind
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.service.catalog import Catalog
from ptxbench.service.judging import NOBODY_KNOWS, Judge
from ptxbench.service.store import Finished
from tests.unit.agent.parts import FakeProfiler, FakeToolchain
from tests.unit.factories import GEMM, make_call, make_comparison, make_run, make_trial, suite_case

CASES = [
    suite_case(GEMM).model_copy(update={"workload": suite_case(GEMM).workload.model_copy(update={"uuid": uuid})})
    for uuid in ("first", "second", "third")
]


def finished(profiler: Any, kind: TaskKind, **changes: object) -> Finished:
    toolchain: Any = FakeToolchain()
    body = {"solution": cuda_solution(GEMM, "x", arch="h100").model_dump(mode="json"), **changes}
    judge = Judge(Catalog(CASES), profiler, Evaluator(lambda: toolchain, 1))
    return judge.perform(kind, json.dumps(body).encode(), "n")


def performed(profiler: Any, kind: TaskKind = "evaluate", **changes: object) -> tuple[Task, list[TaskDetail]]:
    found = finished(profiler, kind, **changes)
    about = {"task_id": "a", "status": found.status, "definition": GEMM, "solution": "n"}
    details = zlib.decompress(found.detail) if found.detail else b"[]"
    task = Task.model_validate_json(json.dumps({**json.loads(found.result), **about}))
    return task, TypeAdapter(list[TaskDetail]).validate_json(details)


def test_what_was_measured_before_a_fault_is_told() -> None:
    profiler = FakeProfiler()

    def fail() -> None:
        if profiler.calls["evaluate"] == 3:
            raise InfrastructureError("oracle_died", "it died")

    profiler.on_evaluate = fail
    task, details = performed(profiler)
    assert (task.status, task.error) == ("failed", "it died")
    assert (task.fault and task.fault.kind, len(details)) == ("oracle_died", 2)
    assert [(one.workload_uuid, one.verdict and one.verdict.outcome.value) for one in task.results] == [
        ("first", "correct"),
        ("second", "correct"),
    ]
    assert len(task.traces or []) == 2


def test_a_fault_before_anything_was_measured() -> None:
    profiler = FakeProfiler()
    profiler.faults = [InfrastructureError("no_device", "none")]
    task, details = performed(profiler)
    assert (task.status, task.error, task.fault and task.fault.kind) == ("failed", "none", "no_device")
    assert (task.results, task.traces, details) == ([], None, [])


@pytest.mark.parametrize("kind", ["evaluate", "profile", "sanitize", "debug"])
def test_what_nobody_measured_is_no_result(kind: TaskKind, tmp_path: Path) -> None:
    task, _ = performed(ReplayProfiler([tmp_path]), kind, workload_uuids=["second"])
    wanted = NOBODY_KNOWS if kind == "evaluate" else "no stored evidence of this hash"
    assert (task.status, task.error, task.fault) == ("failed", wanted, None)
    assert [one.workload_uuid for one in task.results] == ["second"]


@pytest.mark.parametrize("kind", ["evaluate", "profile", "sanitize", "debug"])
def test_what_was_measured_is_one(kind: TaskKind) -> None:
    task, details = performed(FakeProfiler(), kind)
    assert (task.status, task.error, len(task.results), len(details)) == ("completed", None, 3, 3)


@pytest.mark.parametrize("complete", [True, False])
def test_other_device_code_than_the_askers_is_not_measured(complete: bool) -> None:
    profiler = FakeProfiler()
    task, _ = performed(profiler, cubin_sha256="0" * 64, complete=complete)
    assert (task.status, task.fault and task.fault.kind) == ("failed", "build_mismatch")
    assert not profiler.calls


def test_measurement_alone_is_without_tools() -> None:
    profiler = FakeProfiler()
    task, _ = performed(profiler, complete=False)
    assert (task.status, profiler.calls) == ("completed", {"evaluate": 3})


def test_a_tool_that_is_named_often_looks_once() -> None:
    profiler = FakeProfiler()
    tools = ["racecheck", "memcheck", *["racecheck"] * 300]  # or one submission would keep a device for days
    task, _ = performed(profiler, "sanitize", sanitizer_types=tools, workload_uuids=["first"])
    assert [one.tool for one in task.results[0].safety] == ["racecheck", "memcheck"]


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_numbers_that_json_does_not_have_are_words() -> None:
    infinite = make_comparison(max_abs_error=math.inf, max_rel_error=math.nan, rms_error=math.inf, mismatched=9000)
    profiler = FakeProfiler()
    profiler.run = make_run(trials=(make_trial(checks=(make_call(outputs=(infinite,)),)),) * 3)
    found = finished(profiler, "evaluate", workload_uuids=["first"])
    (trace,) = json.loads(found.result, parse_constant=_refuse)["traces"]
    errors = trace["evaluation"]["correctness"]
    assert (errors["max_absolute_error"], errors["max_relative_error"]) == ("Infinity", "NaN")
