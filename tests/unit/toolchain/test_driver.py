"""g++ whose own programs die, for real, and sources that only say so."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptxbench.toolchain import driver, faults
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.plan import compiler_environ
from ptxbench.toolchain.process import Limits, Session, StepResult
from tests.unit.toolchain.parts import write_tool

Compile = Callable[..., StepResult]

KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
LINKER_KILLED = "collect2: fatal error: ld terminated with signal 9 [Killed]\ncompilation terminated.\n"


@pytest.fixture
def compile_watched(tools: Tools, tmp_path: Path) -> Iterator[Compile]:
    """Runs g++ on a source, with programs of the folder ``own`` in the place of its own."""
    with Session(tmp_path, compiler_environ(), Limits()) as session:

        def run(source: str, *options: str) -> StepResult:
            (tmp_path / "x.cpp").write_text(source)
            command = (str(tools.host.path), "-Bown", *options, "x.cpp", "-o", "x.out")
            result = session.run(driver.watched(command, "statuses"))
            return driver.traced(result, command, tmp_path / "statuses")

        yield run


def test_success_and_errors_stay_what_they_are(compile_watched: Compile):
    assert compile_watched("int f();", "-c") == StepResult("g++", 0, "")
    result = compile_watched("int f() { return x; }", "-c")
    assert (result.tool, result.returncode) == ("g++", 1)
    assert "'x' was not declared" in result.output


@pytest.mark.parametrize("wrong", ["#error why", "int x = why;", '#pragma GCC error "why"'])
def test_no_file_of_this_machine_is_shown(compile_watched: Compile, tmp_path: Path, wrong: str):
    (tmp_path / "others").write_text("TOKEN=sesame\n" * 3)
    result = compile_watched(f'#define NAME "{tmp_path}/others"\n#line 1 NAME\n{wrong}\n', "-c")
    assert (result.returncode, "why" in result.output) == (1, True)
    assert "sesame" not in result.output


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGXFSZ])
def test_the_death_of_the_compiler_proper_is_seen(compile_watched: Compile, tmp_path: Path, number: int):
    write_tool(tmp_path / "own/cc1plus", f"kill -{number} $$")
    assert compile_watched("int f();", "-c").returncode == -number


def test_an_internal_error_of_the_compiler_proper_is_seen(compile_watched: Compile, tmp_path: Path):
    write_tool(tmp_path / "own/cc1plus", "echo 'x.cpp:1: internal compiler error: in expand_expr'; exit 4")
    result = compile_watched("int f();", "-c")
    assert (result.returncode, faults.crash(result)) == (4, "internal error")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
@pytest.mark.parametrize("program", ["ld", "collect2"])
def test_the_death_of_the_linker_is_seen(compile_watched: Compile, tmp_path: Path, number: int, program: str):
    write_tool(tmp_path / f"own/{program}", f"kill -{number} $$")
    assert compile_watched("int f();", "-shared", "-fPIC").returncode == -number


@pytest.mark.parametrize(
    "source",
    [
        f'#pragma GCC error "x\\n{KILLED}\\ncompilation terminated."\n',
        f'__attribute__((error("x\\n{KILLED}\\ncompilation terminated."))) void bad();\nvoid f() {{ bad(); }}\n',
        f'#pragma GCC warning "x\\n{KILLED}"\nint f() {{ return x; }}\n',
    ],
)
def test_a_source_that_prints_the_driver_s_words_has_an_ordinary_error(compile_watched: Compile, source: str):
    result = compile_watched(source, "-c")
    assert f"\n{KILLED}\n" in result.output
    assert result.returncode == 1


def traced(output: str, *options: str, report: Path) -> int:
    return driver.traced(StepResult("g++", 1, output), ("g++", *options), report).returncode


def test_the_linker_s_words_count_at_the_end_of_a_link_only(tmp_path: Path):
    report = tmp_path / "statuses"
    report.write_text("0\n1\n")
    assert traced(LINKER_KILLED, "-shared", report=report) == -9
    assert traced(LINKER_KILLED, "-c", report=report) == 1
    assert traced(LINKER_KILLED + "collect2: error: ld returned 1 exit status\n", "-shared", report=report) == 1


def test_the_driver_s_words_count_when_no_program_reported(tmp_path: Path):
    assert traced(f"{KILLED}\ncompilation terminated.\n", "-c", report=tmp_path / "none") == -9
    segfault = "g++: internal compiler error: Segmentation fault signal terminated program cc1plus\n"
    assert traced(segfault, "-c", report=tmp_path / "none") == -11
    assert traced("g++: error: no input files\n", "-c", report=tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("tool", "driven"), [("/usr/bin/g++", True), ("x86_64-linux-gnu-g++", True), ("ptxas", False), ("cicc", False)]
)
def test_whose_command_it_is(tool: str, driven: bool):
    assert driver.drives((tool, "-c")) is driven
