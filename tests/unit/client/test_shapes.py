import json
import time
from typing import Any

import pytest
from pydantic import ValidationError

from ptxbench.client import cuda_solution
from ptxbench.client.shapes import MOST_WAIT_S, BatchRequest, Submission


def document(**changes: object) -> dict[str, object]:
    return {"solution": cuda_solution("gemm", "x").model_dump(mode="json"), **changes}


def read(body: dict[str, object]) -> Submission:
    return Submission.model_validate_json(json.dumps(body))


def test_python_among_the_sources_is_not_parsed() -> None:
    body = document()
    # A megabyte of it keeps a parser busy for five seconds.
    python = {"path": "reference.py", "content": "x=1+1;" * 200_000, "a field": "of a later version"}
    body["solution"]["sources"].append(python)  # type: ignore[index]
    started = time.process_time()
    assert len(read(body).solution.sources) == 2
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "place", ["workload_uuids", "sanitizer_types", "solution.sources", "spec.dependencies", "spec.target_hardware"]
)
def test_a_list_of_nonsense_is_told_once(place: str) -> None:
    """4 MiB of them made an answer of 250 MB, in 24 s and 3 GB of the process that answers everybody."""
    body: dict[str, Any] = document()
    parent, _, name = place.rpartition(".")
    {"": body, "solution": body["solution"], "spec": body["solution"]["spec"]}[parent][name] = [1] * 900
    with pytest.raises(ValidationError) as caught:
        read(body)
    assert caught.value.error_count() <= 2  # and that it is too short, up to there


@pytest.mark.parametrize("nonsense", ["/", " ", "{expected}"])
def test_what_was_found_is_quoted_as_far_as_it_is_read(nonsense: str) -> None:
    body: dict[str, Any] = document()
    body["solution"]["sources"][0]["path"] = nonsense * 100_000
    with pytest.raises(ValidationError, match="characters") as caught:
        read(body)
    assert all(len(fault["msg"]) < 2000 for fault in caught.value.errors())


def test_a_batch_of_nonsense_is_told_once() -> None:
    with pytest.raises(ValidationError) as caught:
        BatchRequest.model_validate_json(json.dumps({"task_ids": [1] * 900}))
    assert caught.value.error_count() == 1


@pytest.mark.parametrize("task_id", ["", ".", "..", ".a", "a/b", "a b", "a\n", "ü", "a" * 129])
def test_id_that_no_address_can_hold_is_refused(task_id: str) -> None:
    with pytest.raises(ValidationError):
        read(document(task_id=task_id))


@pytest.mark.parametrize("task_id", ["run7:turn3", "batch", "_", "a" * 128])
def test_id_of_ones_own(task_id: str) -> None:
    assert read(document(task_id=task_id)).task_id == task_id


@pytest.mark.parametrize("timeout", ["NaN", "-1", "Infinity", str(2 * MOST_WAIT_S)])
def test_no_poll_is_endless(timeout: str) -> None:
    with pytest.raises(ValidationError):
        BatchRequest.model_validate_json(f'{{"task_ids":[],"timeout":{timeout}}}')
