"""Places in the device code become lines of the source where a toolchain builds what was judged."""

from pathlib import Path

import pytest

from ptxbench.agent.feedback import feedback
from ptxbench.errors import InfrastructureError
from ptxbench.models import PastTurn
from ptxbench.records import Candidate
from ptxbench.toolchain import Built, Toolchain
from ptxbench.verdict import judge
from tests.fixtures.kernels import load
from tests.unit.agent.feedback.parts import stored_evidence, stored_turn
from tests.unit.factories import make_record, suite_case


@pytest.fixture(scope="module")
def toolchain(build_cache: Path) -> Toolchain:
    return Toolchain.discover(cache_dir=build_cache)


def built_turn(toolchain: Toolchain, name: str) -> PastTurn:
    case, evidence = suite_case(), stored_evidence(name)
    build = toolchain.build(Candidate(source=load(name)), case.arch).build
    return PastTurn(make_record(build=build, evidence=evidence, verdict=judge(case, build, evidence)), load(name))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("oob_write", "*reinterpret_cast<uint4*>(c + static_cast<int64_t>(m) * kN) ="),
        ("use_after_free", "__global__ void increment(int* counter) { *counter += 1; }"),
        ("illegal_address", "__global__ void store(volatile int* address) { *address = 1; }"),
    ],
)
def test_the_line_of_a_finding_is_quoted(toolchain: Toolchain, name: str, line: str) -> None:
    text = feedback(suite_case(), built_turn(toolchain, name), turns_left=3, toolchain=toolchain)
    number = next(number for number, found in enumerate(load(name).splitlines(), 1) if line in found)
    assert f"At line {number}:\n   {number:>5} | " in text
    assert line in text


def test_other_device_code_gives_an_offset(toolchain: Toolchain) -> None:
    past = stored_turn("oob_write")
    foreign = past._replace(source=load("oob_read"))
    assert "byte 0x90" in feedback(suite_case(), foreign, turns_left=3, toolchain=toolchain)


def test_a_toolchain_that_fails_gives_an_offset() -> None:
    class Broken:
        def build(self, candidate: Candidate, arch: object) -> Built:
            raise InfrastructureError("disk_full", "no room")

    past = stored_turn("oob_write")
    text = feedback(suite_case(), past, turns_left=3, toolchain=Broken())  # type: ignore[arg-type]
    assert "byte 0x90" in text
    assert "no room" not in text
