import pytest

from ptxbench.client import ServiceError, calls, cuda_solution
from ptxbench.client.shapes import Submitted, Task

SOLUTION = cuda_solution("gemm", "x")


def test_field_that_a_service_would_pass_over_is_refused() -> None:
    with pytest.raises(ServiceError, match=r"/evaluate: expected fields out of task_id, .*; found 'prioritty'"):
        calls.submit("evaluate", SOLUTION, None, {"prioritty": "bulk"})


@pytest.mark.parametrize("value", [b"x", float("nan"), "\ud800"])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ServiceError, match="expected a body that JSON can hold"):
        calls.submit("evaluate", {"name": value}, None, {})


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_name_that_would_be_another_path_is_refused(name: str) -> None:
    for call in (lambda: calls.get("definitions", name), lambda: calls.task(name, 0.0, detail=False)):
        with pytest.raises(ServiceError, match="expected an id or a name"):
            call()
    assert calls.get("definitions", "a/../b").path == "/definitions/a%2F..%2Fb"


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf"), 3601.0])
def test_time_that_no_service_waits_is_refused(timeout_s: float) -> None:
    for call in (lambda: calls.task("a", timeout_s, detail=False), lambda: calls.tasks(["a"], timeout_s)):
        with pytest.raises(ServiceError, match="expected seconds from 0 to 3600"):
            call()


@pytest.mark.parametrize("shape", [Submitted, Task, list[Task]])
@pytest.mark.parametrize("content", [b"<html>", b"", b"{}", b'[{"task_id": 1}]', b"null"])
def test_answer_of_something_else_is_no_answer(shape, content: bytes) -> None:
    with pytest.raises(ServiceError, match=r"expected an answer of a PTXBench service.*check the URL") as caught:
        calls.read(shape, content)
    assert caught.value.status == 200
