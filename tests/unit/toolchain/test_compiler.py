"""Compilers that crash on a source and compilers that are killed: whose fault it is."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.records import Build, BuildStatus, Candidate
from ptxbench.toolchain import Limits, Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.steps import DEVICE_STEPS
from tests.unit.toolchain.parts import EXPORT, HOPPER, MINIMAL, replace_step, write_tool

KERNEL = "__global__ void k(int* p) { p[0] = 1; }\n"
CALLS = 70_000
# g++ 12 recurses over the calls until its stack ends.
OVERWHELMING = f"""#ifndef __CUDA_ARCH__
int g(int);
int f(int a) {{ return {"g(" * CALLS}a{")" * CALLS}; }}
#endif
"""
KILLED = "g++: fatal error: Killed signal terminated program cc1plus"

Blamed = Callable[[str], Build]


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


@pytest.fixture
def quick(toolchain: Toolchain, cache: BuildCache) -> Toolchain:
    """A toolchain with plans of its own, whose steps between preprocessing and linking do nothing."""
    quick = Toolchain(toolchain.tools, cache)
    quick._plans = {(HOPPER.gencode, choice): toolchain._plan(HOPPER.gencode, choice) for choice in ("light", "full")}
    for step in ("host_front", *DEVICE_STEPS):
        replace_step(quick, step, "true")
    return quick


@pytest.fixture
def blamed(quick: Toolchain, cache: BuildCache) -> Blamed:
    """Builds a source that must fail by its own fault, and leave nothing behind."""

    def build(source: str) -> Build:
        build, so_path, _ = quick.build(Candidate(source=source), HOPPER)
        assert (build.status, build.timed_out, so_path) == (BuildStatus.COMPILE_ERROR, False, None)
        assert list((cache.folder / "work").iterdir()) == []
        return build

    return build


def entries(cache: BuildCache) -> int:
    return len(list((cache.folder / "builds").glob("*/*")))


def own_program(tools: Tools, folder: Path, program: str, script: str) -> str:
    """The host compiler with another program in the place of one of its own."""
    write_tool(folder / "own" / program, script)
    return write_tool(folder / "g++", f'exec {tools.host.path} -B{folder}/own "$@"')


def test_a_source_that_overwhelms_the_real_compiler_is_wrong(tools: Tools, cache: BuildCache):
    toolchain = Toolchain(tools, cache, Limits(seconds=20))
    build, so_path, _ = toolchain.build(Candidate(source=OVERWHELMING), HOPPER)
    assert (build.status, so_path) == (BuildStatus.COMPILE_ERROR, None)
    # A g++ with more stack takes its time instead.
    assert build.timed_out or "g++ crashed on this source (SIGSEGV), and again when it was run once more\n" in build.log
    assert entries(cache) == 0


@pytest.mark.parametrize(
    ("step", "tool", "number"),
    [
        ("host_front", "cudafe++", signal.SIGILL),
        ("device_front", "cicc", signal.SIGABRT),
        ("assemble", "ptxas", signal.SIGFPE),
    ],
)
def test_a_tool_that_crashes_is_told(
    quick: Toolchain, blamed: Blamed, cache: BuildCache, tmp_path: Path, step: str, tool: str, number: signal.Signals
):
    script = f"echo >> {tmp_path}/tries; echo said before; kill -{int(number)} $$"
    replace_step(quick, step, write_tool(tmp_path / tool, script))
    log = blamed(KERNEL).log
    assert log == f"said before\n{tool} crashed on this source ({number.name}), and again when it was run once more\n"
    assert len((tmp_path / "tries").read_text()) == 2
    assert entries(cache) == 0


def test_an_internal_error_of_the_host_compiler_is_told(
    quick: Toolchain, blamed: Blamed, cache: BuildCache, tools: Tools, tmp_path: Path
):
    script = "echo 'internal compiler error: in expand'; exit 4"
    replace_step(quick, "host_preprocess", own_program(tools, tmp_path, "cc1plus", script))
    log = blamed(KERNEL).log
    assert log.startswith("internal compiler error: in expand\n")
    assert log.endswith("g++ crashed on this source (internal error), and again when it was run once more\n")
    assert entries(cache) == 0


def test_no_candidate_crashes_for_the_light_front_s_sake(quick: Toolchain, blamed: Blamed, tmp_path: Path):
    crashing = write_tool(tmp_path / "cudafe++", "kill -SEGV $$")
    for choice in ("light", "full"):
        replace_step(quick, "host_front", crashing, choice)
    build = blamed(EXPORT)
    assert build.toolchain.headers == "full"
    assert "cudafe++ crashed on this source (SIGSEGV)" in build.log


@pytest.mark.parametrize(("step", "number"), [("host_front", signal.SIGTERM), ("assemble", signal.SIGKILL)])
def test_a_tool_that_is_killed_is_nobody_s_fault(
    quick: Toolchain, cache: BuildCache, tmp_path: Path, step: str, number: int
):
    replace_step(quick, step, write_tool(tmp_path / "tool", f"kill -{int(number)} $$"))
    with pytest.raises(InfrastructureError, match="tool to accept or reject the source; it was killed") as caught:
        quick.build(Candidate(source=KERNEL), HOPPER)
    assert caught.value.kind == "compiler_crashed"
    assert list((cache.folder / "work").iterdir()) == []
    assert entries(cache) == 0


def test_a_program_of_the_host_compiler_that_is_killed_is_nobody_s_fault(
    quick: Toolchain, tools: Tools, tmp_path: Path
):
    replace_step(quick, "device_preprocess", own_program(tools, tmp_path, "cc1plus", "kill -KILL $$"))
    with pytest.raises(InfrastructureError, match=r"g\+\+ to accept or reject the source; it was killed \(SIGKILL\)"):
        quick.build(Candidate(source=KERNEL), HOPPER)


def test_a_crash_that_does_not_repeat_itself_is_nobody_s_fault(quick: Toolchain, cache: BuildCache, tmp_path: Path):
    script = f"test -e {tmp_path}/tried && exit 0; touch {tmp_path}/tried; kill -SEGV $$"
    replace_step(quick, "assemble", write_tool(tmp_path / "ptxas", script))
    with pytest.raises(InfrastructureError, match=r"ptxas to end alike.*crashed \(SIGSEGV\), then succeeded") as caught:
        quick.build(Candidate(source=KERNEL), HOPPER)
    assert caught.value.kind == "compiler_crashed"
    assert entries(cache) == 0


def test_a_source_that_claims_a_kill_is_wrong(blamed: Blamed, cache: BuildCache):
    log = blamed(f'#pragma GCC error "x\\n{KILLED}\\ncompilation terminated."\n').log
    assert f"\n{KILLED}\n" in log
    assert "crashed" not in log
    assert entries(cache) == 1


def test_a_tool_that_is_missing_from_the_toolkit(quick: Toolchain, cache: BuildCache):
    replace_step(quick, "assemble", "no-such-ptxas")
    with pytest.raises(InfrastructureError, match="expected no-such-ptxas in the CUDA toolkit") as caught:
        quick.build(Candidate(source=KERNEL), HOPPER)
    assert caught.value.kind == "compiler_missing"
    assert list((cache.folder / "work").iterdir()) == []


def test_device_code_that_the_disassembler_fails_on_is_built_and_unknown(
    tools: Tools, cache: BuildCache, tmp_path: Path
):
    real = tools.disassembler
    assert real is not None
    path = write_tool(tmp_path / "nvdisasm", f'test "$2" = kernel.cubin && kill -SEGV $$; exec {real.path} "$@"')
    toolchain = Toolchain(tools._replace(disassembler=real._replace(path=Path(path))), cache)
    build, so_path, _ = toolchain.build(Candidate(source=MINIMAL + KERNEL), HOPPER)
    assert (build.status, build.inspection) == (BuildStatus.OK, "unavailable")
    assert so_path is not None
    assert build.log == "nvdisasm crashed (SIGSEGV), twice: the instructions of this build are unknown\n"
    assert [(kernel.kernel, kernel.opcodes) for kernel in build.cubins[0].kernels] == [("_Z1kPi", {})]
