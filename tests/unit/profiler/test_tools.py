"""Finding the tools, and what becomes of their reports; a stand-in tool takes the place of tool and sandbox."""

import errno
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import tools
from ptxbench.profiler.tools import (
    GROWTH_CALLS,
    count_instructions,
    find_tool,
    keeps_memory,
    measure_growth,
    tool_version,
)
from ptxbench.records import CheckedCall, InstructionEvidence, KeptMemory, Safe, SafetyEvidence, ToolStatus
from ptxbench.verdict.safety import judge_safety
from tests.unit.factories import make_call, make_evidence, suite_case
from tests.unit.profiler.samples import TOOLS
from tests.unit.profiler.stand_in import CONNECT, LOADED, OPENING, READY

SERVING = CONNECT + READY + LOADED
WRITE = f"""
def write(name):
    report = sys.argv[sys.argv.index("--log-file") + 1]
    text = open({str(TOOLS)!r} + "/" + name).read()
    open(report, "w").write(text)
"""
ANSWER = """\
hear()
say(b"o")
while b"finish" in (message := hear()) or message == b"c":
    say(b"o" if message == b"c" else b'{"pool_bytes": 0}')
"""
"""Calls, what is kept if that is asked, then ``quit``."""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH and wheels are empty folders and whose CUDA_HOME is not set."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "site"))
    return tmp_path


NAME = "ptxbench-test-tool"
"""Nothing of this name is installed anywhere."""


def test_tool_that_is_nowhere(bare: Path) -> None:
    assert find_tool(NAME) is None


def test_places_are_searched_in_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    monkeypatch.setenv("CUDA_PATH", str(bare / "cuda"))
    places = [
        bare / "site/nvidia/cu13/compute-sanitizer" / NAME,
        bare / "site/nvidia/cu13/bin" / NAME,
        bare / "cuda/bin" / NAME,
        bare / "home/compute-sanitizer" / NAME,
        bare / "home/bin" / NAME,
        bare / "path" / NAME,
    ]
    for place in places:
        executable(place, "#!/bin/sh\n")
        assert find_tool(NAME) == str(place)


def test_what_cannot_be_executed_is_no_tool(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(bare))
    (bare / "bin" / NAME).mkdir(parents=True)
    assert find_tool(NAME) is None
    executable(bare / "compute-sanitizer" / NAME, "#!/bin/sh\n")
    assert find_tool(NAME) == str(bare / "compute-sanitizer" / NAME)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (
            "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
            "Version 2025.3.1.0 (build 36398880) (public-release)",
            "2025.3.1.0 (build 36398880) (public-release)",
        ),
        ("Version 2025.3.1", "2025.3.1"),
        ("no idea", "unknown"),
        ("", "unknown"),
    ],
)
def test_version(said: str, version: str, tmp_path: Path) -> None:
    assert tool_version(str(executable(tmp_path / NAME, f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n"))) == version


def test_version_of_nothing(tmp_path: Path) -> None:
    assert tool_version(str(tmp_path / "absent")) == "unknown"


class StagedState:
    """A workload state without a device: it only notes what is asked of it."""

    def __init__(self, outcome: CheckedCall) -> None:
        self.case = suite_case()
        self.checked = ["draw"]
        self.steps: list[str] = []
        self.arena = SimpleNamespace(arm=lambda: self.steps.append("arm"), scrub=lambda: self.steps.append("scrub"))
        self._outcome = outcome

    def stage(self, _: object) -> None:
        self.steps.append("stage")

    def compare(self, _: object, iteration: int) -> CheckedCall:
        self.steps.append(f"compare {iteration}")
        return self._outcome


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a program the only tool there is; its temporary folders must be gone with the test."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(tools, "tool_version", lambda path: "2025.3.1")
    monkeypatch.setattr(tools, "_POLL_S", 0.02)

    def install_program(body: str) -> None:
        path = executable(tmp_path / "tool", f"#!{sys.executable}\n{OPENING}{WRITE}{body}")
        monkeypatch.setattr(tools, "find_tool", lambda name: str(path))

    return install_program


Install = Callable[[str], None]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Any:
    yield
    scratch = tmp_path / "scratch"
    assert not scratch.exists() or list(scratch.iterdir()) == []


def sanitize(tool: Any = "memcheck") -> SafetyEvidence:
    return tools.sanitize(StagedState(make_call()), {}, tool)  # type: ignore[arg-type]


def count(outcome: CheckedCall | None = None) -> InstructionEvidence:
    return count_instructions(StagedState(outcome or make_call()), {})  # type: ignore[arg-type]


def test_missing_tools_are_unavailable_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_tool", lambda name: None)
    instructions, safety = count(), sanitize("racecheck")
    assert instructions.status is safety.status is ToolStatus.UNAVAILABLE
    assert "Nsight Compute (ncu) was not found" in instructions.message
    assert "compute-sanitizer was not found" in safety.message
    assert safety.tool == "racecheck"


def test_clean_run(install: Install) -> None:
    install(f"{SERVING}{ANSWER}write('memcheck_clean.txt')\n")
    safety = sanitize()
    assert (safety.status, safety.findings, safety.message) == (ToolStatus.OK, (), "")
    assert (safety.version, safety.axes) == ("2025.3.1", suite_case().workload.axes)


def test_nothing_kept_needs_no_further_call(install: Install) -> None:
    install(f"{SERVING}{ANSWER}write('memcheck_clean.txt')\n")
    safety = sanitize()
    assert safety.kept == (KeptMemory(calls=1, allocations=0, allocated_bytes=0),)
    assert safety.outputs_match is True
    assert not keeps_memory(safety)


COUNTING = """
calls = 0
while b"finish" not in (message := hear()):
    calls += 1
    say(b"o")
say(json.dumps({"pool_bytes": POOL}).encode())
hear()
kept = KEPT
report = sys.argv[sys.argv.index("--log-file") + 1]
lines = ["Leaked 64 bytes at 0x7f0000000000", ""] * kept
lines += [f"LEAK SUMMARY: {64 * kept} bytes leaked in {kept} allocations", f"ERROR SUMMARY: {kept} errors"]
open(report, "w").write("".join(f"========= {line}\\n" for line in lines))
"""


@pytest.mark.parametrize(
    ("kept", "pool", "grows"),
    [("1", "0", False), ("min(calls, 4)", "0", False), ("calls", "0", True), ("0", "256 * calls", True)],
)
def test_memory_that_is_kept_is_told_from_memory_that_is_lost(
    kept: str, pool: str, grows: bool, install: Install
) -> None:
    install(SERVING + COUNTING.replace("KEPT", kept).replace("POOL", pool))
    found = sanitize()
    assert keeps_memory(found)
    measured = measure_growth(StagedState(make_call()), {}, found)  # type: ignore[arg-type]
    assert [each.calls for each in measured.kept] == [1, *GROWTH_CALLS]
    assert measured.kept[-1].exceeds(measured.kept[-2]) is grows
    assert (measured.kept_unknown, measured.findings) == ("", ())
    assert judge_safety(make_evidence(safety=(measured,))).safe is (Safe.NO if grows else Safe.YES)


def test_growth_that_could_not_be_measured_is_unknown(install: Install) -> None:
    install(SERVING + COUNTING.replace("KEPT", "1").replace("POOL", "0"))
    found = sanitize()
    install(f"{SERVING}hear(); os.kill(os.getpid(), signal.SIGSEGV)\n")
    measured = measure_growth(StagedState(make_call()), {}, found)  # type: ignore[arg-type]
    assert "SIGSEGV" in measured.kept_unknown
    assert judge_safety(make_evidence(safety=(measured,))).safe is Safe.UNKNOWN


def test_a_finding_in_a_later_call_is_a_finding(install: Install) -> None:
    install(SERVING + COUNTING.replace("KEPT", "1").replace("POOL", "0"))
    found = sanitize()
    install(f"{SERVING}{ANSWER}write('memcheck_write.txt')\n")
    measured = measure_growth(StagedState(make_call()), {}, found)  # type: ignore[arg-type]
    assert measured.finding_count == 2


@pytest.mark.parametrize("answer", ['{"pool_bytes": -1}', '{"pool_bytes": "many"}', '{"error": "reset"}', "[1]", "x"])
def test_what_is_kept_is_unknown_where_the_process_does_not_say(answer: str, install: Install) -> None:
    install(f"{SERVING}hear(); say(b'o'); hear(); say({answer.encode()!r}); hear(); write('memcheck_clean.txt')\n")
    safety = sanitize()
    assert (safety.status, safety.findings) == (ToolStatus.OK, ())
    assert safety.kept_unknown
    assert judge_safety(make_evidence(safety=(safety,))).safe is Safe.UNKNOWN


def test_wrong_outputs_under_a_tool_are_told(install: Install) -> None:
    install(f"{SERVING}{ANSWER}write('memcheck_clean.txt')\n")
    state: Any = StagedState(make_call(inputs_intact=False))
    safety = tools.sanitize(state, {}, "memcheck")
    assert safety.outputs_match is False
    decision = judge_safety(make_evidence(safety=(safety,)))
    assert decision.safe is Safe.UNKNOWN
    assert "under it the outputs were wrong" in decision.message


def test_one_call_on_staged_inputs(install: Install) -> None:
    install(f"{SERVING}{ANSWER}write('memcheck_clean.txt')\n")
    state = StagedState(make_call())
    tools.sanitize(state, {}, "memcheck")  # type: ignore[arg-type]
    assert state.steps == ["scrub", "arm", "stage", "compare 0"]


def test_findings_of_a_call_that_failed(install: Install) -> None:
    install(f"""{SERVING}hear(); say(b'{{"error": "illegal", "code": 719}}'); hear(); write('memcheck_write.txt')\n""")
    safety = sanitize()
    assert (safety.status, safety.finding_count, safety.message) == (ToolStatus.OK, 2, "")
    assert safety.findings[0].kernel.startswith("write_past_end")


def test_call_is_ended_soon_after_its_first_finding(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "FINDINGS_GRACE_S", 0.1)
    install(f"{SERVING}hear(); write('initcheck_read.txt'); time.sleep(60)\n")
    safety = sanitize("initcheck")
    assert (safety.status, safety.finding_count) == (ToolStatus.OK, 239_201)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{SERVING}hear(); os.kill(os.getpid(), signal.SIGSEGV)\n", "ended by SIGSEGV during a call"),
        (f"{SERVING}hear(); write('not_started.txt'); os._exit(1)\n", "code 1 during a call; Error: Target"),
        # Its report looks clean, and somebody ended it.
        (f"{SERVING}{ANSWER}write('memcheck_clean.txt'); os.kill(os.getpid(), signal.SIGKILL)\n", "ended by SIGKILL"),
        (f"{SERVING}{ANSWER}", "the tool wrote no summary"),
        (f"{SERVING}{ANSWER}write('internal_error.txt')\n", "Internal Sanitizer Error"),
        (f"{SERVING}{ANSWER}write('not_supported.txt')\n", "Device not supported"),
        ("write('not_supported.txt'); print('bye', flush=True); sys.exit(1)\n", "bye"),
        (f'{CONNECT}{READY}hear(); say(b\'{{"error": "no such symbol"}}\')\n', "no such symbol"),
    ],
)
def test_run_that_says_nothing_is_failed_with_a_reason(body: str, words: str, install: Install) -> None:
    install(body)
    safety = sanitize()
    assert (safety.status, safety.findings) == (ToolStatus.FAILED, ())
    assert words in safety.message


@pytest.mark.parametrize("body", [f"{SERVING}hear(); time.sleep(60)\n", f"{SERVING}{ANSWER}time.sleep(60)\n"])
def test_run_that_takes_too_long_is_a_timeout(body: str, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TOOL_CALL_TIMEOUT_S", 0.3)
    monkeypatch.setattr(tools, "TOOL_END_TIMEOUT_S", 0.3)
    install(body)
    assert sanitize().status is ToolStatus.TIMEOUT
    instructions = count()
    assert instructions.status is ToolStatus.TIMEOUT
    assert " within 0" in instructions.message


@pytest.mark.parametrize(("outcome", "passed"), [(make_call(), True), (make_call(inputs_intact=False), False)])
def test_counts_and_whether_the_outputs_passed(outcome: CheckedCall, passed: bool, install: Install) -> None:
    install(f"{SERVING}{ANSWER}write('ncu_two_kernels.csv')\n")
    instructions = count(outcome)
    assert (instructions.status, instructions.tool) == (ToolStatus.OK, "ncu 2025.3.1")
    assert instructions.outputs_match is passed
    assert instructions.wall_ms is not None
    assert instructions.wall_ms > 0
    assert len(instructions.kernels) == 2
    assert any(found.opcode.startswith("HGMMA") for found in instructions.counts)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{SERVING}{ANSWER}write('ncu_no_permission.csv')\n", "NVreg_RestrictProfilingToAdminUsers=0"),
        (f"{SERVING}{ANSWER}", "the report holds no instruction lines"),
        ("write('ncu_no_permission.csv'); sys.exit(1)\n", "ERR_NVGPUCTRPERM"),
        ("print('cannot start', flush=True); sys.exit(1)\n", "cannot start"),
        (f"{SERVING}hear(); os._exit(9)\n", "exited with code 9 during a call"),
    ],
)
def test_no_counts_is_failed_with_a_reason(body: str, words: str, install: Install) -> None:
    install(body)
    instructions = count()
    assert (instructions.status, instructions.counts, instructions.outputs_match) == (ToolStatus.FAILED, (), None)
    assert words in instructions.message


@pytest.mark.parametrize("put", ["os.mkfifo(path)", "os.symlink('/dev/zero', path)", "os.mkdir(path)"])
def test_something_else_in_the_place_of_the_report_holds_nobody_up(put: str, install: Install) -> None:
    """Under a tool a candidate can write there; to read a pipe would be to wait for whoever writes to it."""
    forge = "path = next(each for each in sys.argv if each.endswith('/report'))\n" + put + "\n"
    install(f"{forge}{SERVING}{ANSWER}")
    begun = time.monotonic()
    assert sanitize().status is ToolStatus.FAILED
    assert count().status is ToolStatus.FAILED
    assert time.monotonic() - begun < 10


def test_a_link_in_the_place_of_the_report_gives_no_other_file_away(tmp_path: Path) -> None:
    """Words of a report become messages and feedback."""
    report, other = tmp_path / "report", tmp_path / "other"
    other.write_text("a key")
    report.symlink_to(other)
    assert tools._read(report) == ""


def test_of_a_report_no_more_is_read_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_REPORT_BYTES", 3)
    report = tmp_path / "report"
    report.write_text("report")
    assert tools._read(report) == "rep"


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, "disk_full"), (errno.EACCES, "sandbox_failed")])
def test_no_room_for_a_report_is_a_fault_with_its_name(
    number: int, kind: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the end of the oracle, whose state takes a minute to build again."""

    def full(**_: object) -> str:
        raise OSError(number, os.strerror(number))

    install(SERVING)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    for run in (sanitize, count):
        with pytest.raises(InfrastructureError, match=os.strerror(number)) as caught:
            run()
        assert caught.value.kind == kind


def test_a_candidate_that_takes_all_memory_under_a_tool_is_to_blame(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the machinery would exclude the turn, and a wrong result with it."""
    words = "CUDA error: out of memory"

    def compare(*_: object) -> CheckedCall:
        raise RuntimeError(words)

    install(f"{SERVING}{ANSWER}write('memcheck_clean.txt')\n")
    monkeypatch.setattr(StagedState, "compare", compare)
    for found in (sanitize(), count()):
        assert found.status is ToolStatus.FAILED
        assert "too little device memory was left" in found.message
    words = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal"):
        sanitize()
