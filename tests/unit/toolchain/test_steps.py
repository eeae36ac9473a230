import signal
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.plan import CompilePlan
from ptxbench.toolchain.process import Limits, Session
from ptxbench.toolchain.steps import DEVICE_STEPS, FRONT_END_STEPS, StepError, Steps
from tests.unit.toolchain.parts import write_tool

PLAN = CompilePlan(
    host_preprocess=("sh", "-c", "echo host warns", "-o", "host.ii"),
    host_front=("sh", "-c", "echo host fails; exit 2"),
    host_compile=("true",),
    device_preprocess=("sh", "-c", "echo host warns", "-o", "device.ii"),
    device_front=("sh", "-c", "echo device reads > x"),
    assemble=("sh", "-c", "echo device assembles; exit 1", "-o", "kernel.cubin"),
    pack=("sh", "-c", "echo never > packed"),
    env={},
    root=Path("/"),
    include_dirs=(),
    library_dirs=(),
    module_id_file="id",
    device_arch="sm_90a",
)


@pytest.fixture
def steps(tmp_path: Path):
    with Session(tmp_path, {"PATH": "/usr/bin:/bin"}, Limits()) as session:
        yield Steps(PLAN, tmp_path, session)


def test_a_failing_step_ends_its_chain(steps: Steps):
    with pytest.raises(StepError) as caught:
        steps.run_device()
    assert (caught.value.step, caught.value.result.returncode) == ("assemble", 1)
    assert (steps.folder / "x").exists()
    assert not (steps.folder / "packed").exists()


def test_the_log_is_in_the_compiler_s_order_without_repetition(steps: Steps):
    for name in ("device_preprocess", "assemble", "host_front", "host_preprocess"):
        steps.attempt(name)
    assert steps.log() == "host warns\nhost fails\ndevice assembles\n"


def test_products_are_named_by_the_plan(steps: Steps):
    assert steps.product("assemble") == steps.folder / "kernel.cubin"
    assert steps.product("host_preprocess").name == "host.ii"


def test_every_step_of_a_plan_has_a_place():
    assert {*DEVICE_STEPS, *FRONT_END_STEPS} == set(CompilePlan._fields[:7])


# The first try leaves a file behind, by which the second one knows that it is the second.
CRASHES_ONCE = "test -e tried && {second}; touch tried; kill -SEGV $$"


def attempt(steps: Steps, script: str) -> tuple[int, int]:
    """Return code of a step, and how often it was tried."""
    result = steps.attempt("assemble", ("sh", "-c", f"echo >> tries; {script}"))
    return result.returncode, len((steps.folder / "tries").read_text())


def test_what_crashes_is_run_once_more_and_then_believed(steps: Steps):
    assert attempt(steps, "kill -SEGV $$") == (-signal.SIGSEGV, 2)


def test_crashing_in_another_way_is_crashing_again(steps: Steps):
    assert attempt(steps, CRASHES_ONCE.format(second="kill -ABRT $$")) == (-signal.SIGABRT, 2)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("exit 0", r"crashed \(SIGSEGV\), then succeeded"),
        ("exit 2", r"crashed \(SIGSEGV\), then ended with code 2"),
        ("kill -KILL $$", r"was killed \(SIGKILL\)"),
    ],
)
def test_a_crash_that_does_not_repeat_itself_is_the_machinery_s(steps: Steps, second: str, message: str):
    with pytest.raises(InfrastructureError, match=message) as caught:
        attempt(steps, CRASHES_ONCE.format(second=second))
    assert caught.value.kind == "compiler_crashed"


@pytest.mark.parametrize("script", ["exit 1", "kill -KILL $$", "echo std::bad_alloc; kill -ABRT $$", "kill -XFSZ $$"])
def test_what_does_not_crash_is_run_once(steps: Steps, script: str):
    assert attempt(steps, script)[1] == 1


def test_a_second_try_that_meets_a_limit_is_no_fault(tmp_path: Path):
    with Session(tmp_path, {"PATH": "/usr/bin:/bin"}, Limits(seconds=0.5)) as session:
        steps = Steps(PLAN, tmp_path, session)
        assert attempt(steps, CRASHES_ONCE.format(second="sleep 60")) == (-signal.SIGKILL, 2)
        assert session.timed_out_tool == "sh"


def test_a_second_try_without_memory_is_no_fault(steps: Steps):
    assert attempt(steps, CRASHES_ONCE.format(second="{ echo std::bad_alloc; exit 1; }")) == (1, 2)


def test_the_host_compiler_is_known_by_what_its_programs_did(steps: Steps, tmp_path: Path):
    (steps.folder / "own").mkdir()
    write_tool(steps.folder / "own/cc1plus", "kill -SEGV $$")
    (steps.folder / "x.cpp").touch()
    assert steps.attempt("host_compile", ("g++", "-Bown", "-c", "x.cpp")).returncode == -signal.SIGSEGV
    (steps.folder / "own/cc1plus").unlink()
    assert steps.attempt("host_compile", ("g++", "-Bown", "-c", "x.cpp")).ok
