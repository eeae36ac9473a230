"""The real ptxas, and disassemblers that fail."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.disassembly import disassemble
from ptxbench.toolchain.discovery import Disassembler, Tools
from ptxbench.toolchain.plan import CompilePlan, compiler_environ, read_plan
from ptxbench.toolchain.process import MAX_OUTPUT_BYTES, Limits, Session
from ptxbench.toolchain.sass import parse_sass
from ptxbench.toolchain.steps import StepError, Steps
from tests.unit.toolchain.parts import HOPPER, write_tool

PTX = """//
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
FAILS_ON_THE_KERNEL = 'test "$2" = kernel.cubin || exit 0; '


@pytest.fixture(scope="module")
def plan(tools: Tools) -> CompilePlan:
    return read_plan(tools.compiler.nvcc, tools.host.path, HOPPER.gencode, ())


@pytest.fixture
def steps(plan: CompilePlan, tmp_path: Path) -> Iterator[Steps]:
    """Steps after ptxas has written ``kernel.cubin``."""
    with Session(tmp_path, compiler_environ() | plan.env, Limits(seconds=20)) as session:
        steps = Steps(plan, tmp_path, session)
        steps.product("device_front").write_text(PTX)
        steps.run("assemble")
        yield steps


def fake(steps: Steps, script: str) -> Disassembler:
    return Disassembler(Path(write_tool(steps.folder / "nvdisasm", script)), "99.0")


def test_device_code_becomes_text(steps: Steps, tools: Tools):
    text, note = disassemble(steps, tools.disassembler)
    assert note == ""
    (kernel,) = parse_sass(text or "")
    assert (kernel.kernel, kernel.opcodes["STG"]) == ("scale", 1)


def test_without_a_tool_nothing_is_said(steps: Steps):
    assert disassemble(steps, None) == (None, "")


def test_a_long_text_is_read_to_its_end(steps: Steps):
    lines = 2 * MAX_OUTPUT_BYTES // 10
    tool = fake(steps, f"echo .text.k:; yes '/*0000*/ MOV ;' | head -n {lines}; echo '/*0000*/ UTMALDG ;'")
    (kernel,) = parse_sass(disassemble(steps, tool).text or "")
    assert kernel.opcodes == {"MOV": lines, "UTMALDG": 1}


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("kill -SEGV $$", "nvdisasm crashed (SIGSEGV), twice: the instructions of this build are unknown\n"),
        ("echo reads; echo no such code; exit 3", "nvdisasm failed with code 3 (no such code): the instructions"),
        ("echo std::bad_alloc; exit 1", "nvdisasm stopped: it needed more memory than the limit: the instructions"),
    ],
)
def test_what_fails_on_one_kernel_alone_leaves_its_instructions_unknown(steps: Steps, script: str, note: str):
    text, said = disassemble(steps, fake(steps, FAILS_ON_THE_KERNEL + script))
    assert text is None
    assert said.startswith(note)


def test_a_plain_kernel_is_read_before_the_source_is_blamed(steps: Steps, tools: Tools):
    real = tools.disassembler
    assert real is not None
    tool = fake(steps, f'test "$2" = kernel.cubin && exit 1; {real.path} "$@" | tee plain.sass')
    assert disassemble(steps, tool).text is None
    assert "EXIT" in (steps.folder / "plain.sass").read_text()


def test_a_tool_that_reads_no_kernel_is_the_machinery_s_fault(steps: Steps):
    with pytest.raises(InfrastructureError, match=r"nvdisasm 99\.0 to read what ptxas writes for sm_90a.*too old") as e:
        disassemble(steps, fake(steps, "echo too old for this; exit 1"))
    assert e.value.kind == "compiler_crashed"


def test_a_tool_that_was_killed_is_the_machinery_s_fault(steps: Steps):
    with pytest.raises(InfrastructureError, match=r"was killed \(SIGKILL\)"):
        disassemble(steps, fake(steps, f"kill -{int(signal.SIGKILL)} $$"))


def test_the_time_limit_ends_the_build(steps: Steps):
    with Session(steps.folder, compiler_environ(), Limits(seconds=0.2)) as session:
        late = Steps(steps.plan, steps.folder, session)
        with pytest.raises(StepError):
            disassemble(late, fake(late, "sleep 60"))
        assert session.timed_out_tool == "nvdisasm"
