from pathlib import Path

import pytest

from ptxbench.toolchain.plan import CompilePlan
from ptxbench.toolchain.process import Limits, Session
from ptxbench.toolchain.steps import DEVICE_STEPS, FRONT_END_STEPS, StepError, Steps

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
