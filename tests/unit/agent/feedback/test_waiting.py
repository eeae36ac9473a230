"""Where a call waited is told by kernel, line, instruction and number of threads; nothing of the machine is."""

from pathlib import Path
from typing import Any

import pytest

from ptxbench.agent.feedback import feedback
from ptxbench.agent.feedback.places import has_places
from ptxbench.models import PastTurn
from ptxbench.records import NO_KERNEL_RAN, Candidate, WaitingPlace
from ptxbench.toolchain import Toolchain
from ptxbench.verdict import judge
from tests.fixtures.kernels import load
from tests.unit.agent.feedback.parts import stored_evidence, stored_turn, text_of
from tests.unit.factories import make_record, suite_case

KERNEL = "_Z13wait_for_everv"


def place(offset: int | None = 16, threads: int = 32, blocks: int = 1, **changes: Any) -> WaitingPlace:
    values: dict[str, Any] = {
        "kernel": KERNEL,
        "block": (2, 0, 0),
        "thread": (32, 0, 0),
        "instruction": "NANOSLEEP 0x3e8",
    }
    return WaitingPlace(offset=offset, threads=threads, blocks=blocks, **values | changes)


def hung(*places: WaitingPlace, unknown: str = "", **build: Any) -> PastTurn:
    evidence = stored_evidence("endless")
    run = evidence.run.model_copy(update={"waiting": places, "waiting_unknown": unknown})
    return stored_turn("endless", evidence=evidence.model_copy(update={"run": run}), **build)


def test_the_place_is_the_first_fact() -> None:
    text = text_of(hung(place(threads=19_200, blocks=200)))
    facts = text.partition("Facts:\n")[2]
    assert facts.startswith(
        "- When its calls were made once more: 19,200 threads of kernel wait_for_ever, in 200 blocks, among them "
        "thread (32,0,0) of block (2,0,0).\n  At byte 0x10 of the kernel's code.\n  Instruction: NANOSLEEP 0x3e8\n"
        "- It was stopped: "
    )
    assert "any kernel of the object can be the one" not in text


def test_instructions_of_one_line_are_one_place() -> None:
    past = hung(place(16, 64, 2), place(32, 3000, 90), place(48, 5, 5))
    source = load("endless")
    evidence_text = _located(past, source, {16: (11,), 32: (11,), 48: (10,)})
    assert "3,064 threads of kernel wait_for_ever, in at least 90 blocks" in evidence_text
    assert "5 threads of kernel wait_for_ever, in 5 blocks" in evidence_text
    assert evidence_text.index("At line 11:") < evidence_text.index("At line 10:")


def _located(past: PastTurn, source: str, lines: dict[int, tuple[int, ...]]) -> str:
    from ptxbench.agent.feedback.hang import describe
    from ptxbench.agent.feedback.parts import Turn

    turn = Turn(suite_case(), past.record, source, lambda _, offset: lines.get(offset, ()))
    return "\n".join(describe(turn).facts)


def test_an_inlined_place_quotes_both_lines() -> None:
    text = _located(hung(place()), load("endless"), {16: (11, 16)})
    assert "At line 11, inlined at line 16:\n    11 |   for (;;)" in text
    assert "\n    16 |   wait_for_ever<<<1, 1" in text


def test_a_place_in_a_function_has_no_offset() -> None:
    assert "In a function that the kernel calls." in text_of(hung(place(None)))


def test_many_places_are_bounded() -> None:
    text = text_of(hung(*[place(16 * number, threads=100 - number) for number in range(1, 17)]))
    assert text.count("When its calls were made once more") == 4
    assert "1,074 threads more were at 12 places." in text


def test_addresses_are_not_told() -> None:
    text = text_of(hung(place(instruction="@!P0 BRA 0x7f5c5f7a0170")))
    assert "Instruction: @!P0 BRA <address>" in text
    assert "7f5c5f7a" not in text


def test_the_other_kernels_are_left_out_where_one_was_seen() -> None:
    names = ("_Z5otherv", KERNEL)
    everything, one = text_of(_with_kernels(names)), text_of(_with_kernels(names, place()))
    assert "other holds (lines of SASS)" in everything
    assert "other holds (lines of SASS)" not in one
    assert "wait_for_ever holds (lines of SASS)" in one


def _with_kernels(names: tuple[str, ...], *places: WaitingPlace) -> PastTurn:
    past = hung(*places)
    build = past.record.build
    assert build is not None
    (cubin,) = build.cubins
    (kernel,) = cubin.kernels
    kernels = tuple(kernel.model_copy(update={"kernel": name}) for name in names)
    build = build.model_copy(update={"cubins": (cubin.model_copy(update={"kernels": kernels}),)})
    return past._replace(record=past.record.model_copy(update={"build": build}))


def test_host_code_alone_is_told() -> None:
    text = text_of(hung(unknown=NO_KERNEL_RAN))
    assert "no kernel was running: your host code did not return" in text
    for word in ("any kernel of the object", "barrier", "lines of SASS"):
        assert word not in text


def test_a_line_that_the_source_lacks_is_an_offset() -> None:
    assert "At byte 0x10 of the kernel's code." in _located(hung(place()), load("endless"), {16: (5000,)})


@pytest.mark.parametrize("unknown", ["", "cuda-gdb was not found on PATH or in CUDA_HOME"])
def test_what_is_not_known_is_not_mentioned(unknown: str) -> None:
    text = text_of(hung(unknown=unknown))
    assert text == text_of(hung())
    assert "once more" not in text
    assert "cuda-gdb" not in text


def test_the_place_that_a_device_showed_is_told() -> None:
    text = text_of(stored_turn("endless"))
    assert "1 thread of kernel wait_for_ever, in 1 block" in text
    assert "Instruction: BRA <address>" in text


def test_a_toolchain_is_asked_for_where_a_place_is_known() -> None:
    assert has_places(hung(place()))
    assert not has_places(hung())


def test_the_line_of_a_place_in_a_real_kernel_is_quoted(build_cache: Path) -> None:
    toolchain, case, source = Toolchain.discover(cache_dir=build_cache), suite_case(), load("endless")
    build = toolchain.build(Candidate(source=source), case.arch).build
    evidence = hung(place(threads=1)).record.evidence
    record = make_record(build=build, evidence=evidence, verdict=judge(case, build, evidence))
    text = feedback(case, PastTurn(record, source), turns_left=3, toolchain=toolchain)
    line = next(line for line in source.splitlines() if "nanosleep" in line)
    number = source.splitlines().index(line) + 1
    assert f"At line {number}:\n   {number:>5} | {line}\n  Instruction: NANOSLEEP 0x3e8\n" in text
