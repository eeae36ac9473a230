"""What an actor takes from another node, and what it refuses."""

import hashlib
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.ray.actor import Compiled, Delivered, Device, Reply
from ptxbench.profiler.wire import request_of
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Built
from tests.unit.factories import GEMM, make_build, suite_case

CASE = suite_case(GEMM)
CANDIDATE = Candidate(source="int x;")
OBJECT = b"an object"


def compiled(**changes: object) -> Compiled:
    told: dict[str, Any] = {
        "candidate_sha256": CANDIDATE.sha256,
        "so_sha256": hashlib.sha256(OBJECT).hexdigest(),
        **changes,
    }
    return Compiled(build=make_build(**told))


def test_an_object_of_the_hash_that_was_built_is_taken(tmp_path):
    built = Delivered(compiled(), OBJECT, tmp_path).build(CANDIDATE, CASE.arch)
    assert built.so_path is not None
    assert built.so_path.read_bytes() == OBJECT


@pytest.mark.parametrize(
    ("found", "content", "message"),
    [
        (compiled(), b"another object", "changed on the way"),
        (compiled(candidate_sha256="0" * 64), OBJECT, "expected a build of source"),
        (Compiled(), OBJECT, "found one of nothing"),
    ],
)
def test_anything_else_is_refused(found, content, message, tmp_path):
    with pytest.raises(InfrastructureError, match=message) as caught:
        Delivered(found, content, tmp_path).build(CANDIDATE, CASE.arch)
    assert caught.value.kind == "build_mismatch"


def test_what_goes_wrong_is_an_answer(tmp_path, monkeypatch):
    """Exceptions would have to be pickled, and would be taken for the end of the actor."""
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.evidence.json").write_text("{}")
    device = Device("replay", str(tmp_path), [str(tmp_path)], 0.0)
    build = compiled().build
    assert build is not None
    assert build.status is BuildStatus.OK
    request = request_of("evaluate", CASE, Built(build, None, CANDIDATE)).model_dump_json()
    reply = Reply.model_validate_json(device.perform(request, compiled().model_dump_json(), OBJECT))
    assert "not an evidence record" in reply.input_error
    reply = Reply.model_validate_json(device.perform("no request", compiled().model_dump_json(), OBJECT))
    assert reply.answer.fault is not None
    assert reply.answer.fault.kind == "internal_error"
    device.close()
    assert not list((tmp_path / "cache").iterdir())
