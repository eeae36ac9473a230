import hashlib
import json

import pytest

from ptxbench.client import cuda_solution
from ptxbench.client.shapes import Submission
from ptxbench.service import naming
from ptxbench.service.naming import content_hash, unique_name


def submission(source: str = "x", name: str = "n", **changes: object) -> Submission:
    solution = cuda_solution("gemm", source, name=name).model_dump(mode="json")
    return Submission.model_validate_json(json.dumps({"solution": solution, **changes}))


def test_unique_name_is_that_of_flashinfer_bench() -> None:
    """``NAME_`` and the first eight digits of SHA-1 over definition, language, entry, binding and sources."""
    text = "gemm" + "cuda" + "kernel.cu::run" + "tvm-ffi" + "kernel.cu" + "source"
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]
    assert unique_name(cuda_solution("gemm", "source", name="mine")) == f"mine_{digest}"


def test_same_content_is_one_task_whoever_asks_and_how_urgently() -> None:
    plain = content_hash("evaluate", submission(), ["c"], "replayed")
    assert plain == content_hash("evaluate", submission(client="b", priority="bulk"), ["c"], "replayed")


def test_version_and_borders_are_part_of_the_content(monkeypatch) -> None:
    plain = content_hash("evaluate", submission(), ["ab", "c"], "replayed")
    assert plain != content_hash("evaluate", submission(), ["a", "bc"], "replayed")
    monkeypatch.setattr(naming, "__version__", "another")
    assert plain != content_hash("evaluate", submission(), ["ab", "c"], "replayed")


@pytest.mark.parametrize(
    ("kind", "made", "cases", "origin"),
    [
        ("profile", submission(), ["c"], "replayed"),
        ("evaluate", submission("y"), ["c"], "replayed"),
        ("evaluate", submission(name="other"), ["c"], "replayed"),
        ("evaluate", submission(arch="b200"), ["c"], "replayed"),
        ("evaluate", submission(complete=False), ["c"], "replayed"),
        ("evaluate", submission(), ["d"], "replayed"),
        ("evaluate", submission(), ["c", "d"], "replayed"),
        ("evaluate", submission(), ["c"], "measured"),
    ],
)
def test_whatever_changes_a_result_is_another_task(kind, made, cases, origin) -> None:
    assert content_hash(kind, made, cases, origin) != content_hash("evaluate", submission(), ["c"], "replayed")
