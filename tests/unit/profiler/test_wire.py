from pathlib import Path
from typing import Any

import pytest

from ptxbench.cases import Arch
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.ticket import Ticket, current_ticket, ticket
from ptxbench.profiler.wire import Answer, Request, perform, request_of, unwrap
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Built
from tests.unit.agent.parts import FakeProfiler
from tests.unit.factories import digest, make_build, suite_case, unbuilt

CANDIDATE = Candidate(source="// a kernel")
CASE = suite_case()


class Toolchain:
    """Builds the same device code every time, or none."""

    def __init__(self, status: BuildStatus = BuildStatus.OK) -> None:
        self.status = status

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        own: dict[str, Any] = {"candidate_sha256": candidate.sha256}
        build = make_build(**own) if self.status is BuildStatus.OK else unbuilt(self.status, **own)
        return Built(build, Path("k.so"), candidate)


def built() -> Built:
    return Toolchain().build(CANDIDATE, CASE.arch)


def sent(operation="evaluate", tool=None) -> Request:
    """A request as it arrives."""
    return Request.model_validate_json(request_of(operation, CASE, built(), tool).model_dump_json())


def test_a_request_arrives_as_it_was_made() -> None:
    with ticket("a trainer", "bulk"):
        request = sent("sanitize", "racecheck")
    assert (request.client, request.priority, request.tool) == ("a trainer", "bulk", "racecheck")
    assert request.case == CASE
    assert request.candidate == CANDIDATE
    assert request.cubin_sha256 == built().build.cubin_sha256


@pytest.mark.parametrize(("operation", "field"), [("evaluate", "evidence"), ("instructions", "instructions")])
def test_operations_are_those_of_the_profiler(operation, field) -> None:
    answer = perform(sent(operation), FakeProfiler(), Toolchain())
    assert unwrap(answer) is answer
    assert {name for name in ("evidence", "instructions", "safety") if getattr(answer, name) is not None} == {field}
    assert Answer.model_validate_json(answer.model_dump_json()) == answer


def test_operation_is_done_in_the_name_of_whoever_asked() -> None:
    profiler = FakeProfiler()
    seen: list[object] = []
    profiler.on_evaluate = lambda: seen.append(current_ticket())
    with ticket("a trainer", "bulk"):
        request = sent()
    unwrap(perform(request, profiler, Toolchain()))
    assert seen == [Ticket("a trainer", "bulk")]


def test_what_was_not_built_here_is_not_measured() -> None:
    profiler = FakeProfiler()
    anything = sent().model_copy(update={"cubin_sha256": None})
    assert fault(anything, Toolchain(BuildStatus.COMPILE_ERROR), profiler) == "build_mismatch"
    assert not profiler.calls


def test_sanitizer_is_the_one_that_was_asked_for() -> None:
    profiler = FakeProfiler()
    answer = perform(sent("sanitize", "memcheck"), profiler, Toolchain())
    assert answer.safety is not None
    assert answer.safety.tool == "memcheck"


def fault(request: Request, toolchain: Toolchain | None = None, profiler: FakeProfiler | None = None) -> str:
    with pytest.raises(InfrastructureError) as caught:
        unwrap(perform(request, profiler or FakeProfiler(), toolchain or Toolchain()))
    return caught.value.kind


def test_source_that_was_changed_on_the_way_is_refused() -> None:
    assert fault(sent().model_copy(update={"candidate": Candidate(source="// another")})) == "build_mismatch"


def test_other_device_code_is_refused() -> None:
    assert fault(sent().model_copy(update={"cubin_sha256": digest("f")})) == "build_mismatch"


def test_a_source_that_only_the_asker_could_build_is_refused() -> None:
    assert fault(sent(), Toolchain(status=BuildStatus.COMPILE_ERROR)) == "build_mismatch"


def test_faults_of_the_profiler_come_back_with_their_kind() -> None:
    profiler = FakeProfiler()
    profiler.faults = [InfrastructureError("oracle_died", "it is gone")]
    assert fault(sent(), profiler=profiler) == "oracle_died"


def test_a_build_without_its_source_cannot_be_asked_about() -> None:
    with pytest.raises(InfrastructureError, match="needs the source"):
        request_of("evaluate", CASE, built()._replace(candidate=None))
