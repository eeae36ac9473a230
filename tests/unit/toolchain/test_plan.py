from pathlib import Path

import pytest

from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.plan import CompilePlan, PlanError, compiler_environ, nvcc_version, parse_plan, read_plan

GENCODE = "arch=compute_90a,code=sm_90a"

# The shape of nvcc 13.0's output, shortened.
DRYRUN = """#$ _HERE_=/cuda/bin
#$ TOP=/cuda/bin/..
#$ CICC_PATH=/cuda/nvvm/bin
#$ LD_LIBRARY_PATH=/cuda/lib:
#$ PATH=/cuda/bin:/usr/bin
#$ LIBRARIES=  "-L/cuda/lib/stubs" "-L/cuda/lib"
#$ "/usr/bin"/g++ -D__CUDA_ARCH_LIST__=900 -E -x c++ -I"light" "-I/cuda/include" "-isystem" "/cuda/include/cccl" \
-D__CUDACC_VER_MAJOR__=13 -D__CUDACC_VER_MINOR__=0 -D__CUDACC_VER_BUILD__=88 "kernel.cu" -o "kernel.cpp4.ii"
#$ cudafe++ --gen_module_id_file --module_id_file_name "kernel.module_id" "kernel.cpp4.ii"
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -E "kernel.cu" -o "kernel.cpp1.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "kernel.module_id" "kernel.cpp1.ii" -o "kernel.ptx"
#$ ptxas -arch=sm_90a -m64 "kernel.ptx" -o "kernel.cubin"
#$ fatbinary --create="kernel.fatbin" --cmdline="-v  " "--image3=kind=elf,sm=90a,file=kernel.cubin"
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -c -x c++ "kernel.cudafe1.cpp" -o "kernel.o"
"""


def test_steps_are_read_with_variables_and_quotes_resolved():
    plan = parse_plan(DRYRUN)
    assert plan.device_front[0] == "/cuda/nvvm/bin/cicc"
    assert plan.host_compile[0] == "/usr/bin/g++"
    assert plan.pack[2] == "--cmdline=-v  "
    assert plan.device_arch == "sm_90a"
    assert plan.include_dirs == (Path("light"), Path("/cuda/include"), Path("/cuda/include/cccl"))
    assert plan.library_dirs == (Path("/cuda/lib/stubs"), Path("/cuda/lib"))
    assert plan.env == {"PATH": "/cuda/bin:/usr/bin", "LD_LIBRARY_PATH": "/cuda/lib:"}
    assert nvcc_version(plan) == "13.0.88"


def test_the_module_id_is_ours():
    plan = parse_plan(DRYRUN)
    assert plan.module_id_file == "kernel.module_id"
    assert "--gen_module_id_file" not in plan.host_front


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists the steps"),
        (DRYRUN.replace("#$ ptxas", "#$ other"), "lists the steps"),
        (DRYRUN.replace("#$ TOP=", "#$ BOTTOM="), "lists the steps"),
        (DRYRUN + '#$ ptxas -arch=sm_80 "kernel.ptx" -o "x.cubin"\n', "two steps"),
        (DRYRUN.replace('"kernel.ptx" -o', '"kernel.ptx -o'), "no shell reads"),
        (DRYRUN.replace("--module_id_file_name", "--id"), "names no module id"),
    ],
)
def test_another_list_of_steps_is_refused(text: str, message: str):
    with pytest.raises(PlanError, match=message):
        parse_plan(text)


def test_a_real_plan_holds_no_path_of_the_source(tools: Tools):
    plan = read_plan(tools.compiler.nvcc, tools.host.path, GENCODE, ("light",))
    for name in CompilePlan._fields[:7]:
        step = getattr(plan, name)
        assert not any("ptxbench-plan-" in arg for arg in step), step
    assert nvcc_version(plan) == tools.compiler.version


def test_an_unknown_architecture_is_refused_in_nvcc_s_words(tools: Tools):
    with pytest.raises(PlanError, match=r"sm_1a.*(Unsupported|not defined)"):
        read_plan(tools.compiler.nvcc, tools.host.path, "arch=compute_1a,code=sm_1a", ())


def test_a_program_that_is_no_nvcc_is_refused(tmp_path: Path, tools: Tools):
    with pytest.raises(PlanError, match="does not run"):
        read_plan(tmp_path / "absent", tools.host.path, GENCODE, ())
    with pytest.raises(PlanError, match="lists the steps"):
        read_plan(Path("/bin/true"), tools.host.path, GENCODE, ())


def test_the_user_s_environment_does_not_reach_the_compiler(monkeypatch: pytest.MonkeyPatch):
    for name in ("NVCC_APPEND_FLAGS", "CPATH", "OPENAI_API_KEY", "TZ"):
        monkeypatch.setenv(name, "x")
    assert set(compiler_environ()) <= {"PATH", "LD_LIBRARY_PATH", "LC_ALL", "SOURCE_DATE_EPOCH", "TZ"}
    assert compiler_environ()["TZ"] == "UTC0"
