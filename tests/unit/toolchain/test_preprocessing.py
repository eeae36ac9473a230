"""The screen on what the real preprocessor makes of real sources."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.records import Finding
from ptxbench.toolchain import headers, preprocessing, translation
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.plan import CompilePlan, compiler_environ, read_plan
from ptxbench.toolchain.preprocessing import MISSING_DIR, preprocess
from ptxbench.toolchain.process import Limits, Session
from ptxbench.toolchain.screen import HeaderFolders
from ptxbench.toolchain.steps import StepError, Steps

Screen = Callable[[str], list[Finding]]

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


@pytest.fixture(scope="module")
def plan(tools: Tools) -> CompilePlan:
    return read_plan(
        tools.compiler.nvcc, tools.host.path, "arch=compute_90a,code=sm_90a", headers.include_dirs("light")
    )


@pytest.fixture
def screen(tools: Tools, plan: CompilePlan, tmp_path: Path) -> Iterator[Screen]:
    headers.link_headers(tmp_path, tools.tvm_ffi.include_dir)
    own = (Path(MISSING_DIR), headers.LIGHT_DIR, tools.tvm_ffi.include_dir)
    folders = HeaderFolders(tmp_path, (*own, *plan.include_dirs, *tools.host.include_dirs))
    with Session(tmp_path, compiler_environ() | plan.env, Limits()) as session, ThreadPoolExecutor(2) as pool:

        def run(source: str) -> list[Finding]:
            for leftover in tmp_path.glob("*.kept"):
                leftover.unlink()
            (tmp_path / "kernel.cu").write_text(source)
            return list(preprocess(Steps(plan, tmp_path, session), pool, source, folders))

        yield run


def met(findings: list[Finding]) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.line) for finding in findings]


def test_an_honest_kernel_that_uses_much_of_cuda(screen: Screen):
    source = """// Beats cuBLAS: no cublasGemmEx, no dlopen("libcublas.so"), no #include <cudnn.h> needed.
/* #include <cublas_v2.h>
# 1 "cuda.h" 1
*/
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/std/type_traits>
#include <mma.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
#include <algorithm>
#include <cstdio>
#include <vector>
#include <unistd.h>
#include <dlfcn.h>
#if 0
#include <cublas_v2.h>
#endif
#ifdef USE_CUDNN
#include <cudnn.h>
#endif
#if __has_include(<no_such_library.h>)
#include <no_such_library.h>
#endif
const char* text = R"(
# 1 "cuda.h" 1
dlopen)";
void* encode() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &status);
  std::printf("system cuModuleLoad %s", text);
  return f;
}
"""
    assert screen(source + KERNEL) == []


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ("#include <cuda.h>\n#include <thrust/version.h>\n", "library-header", 2),
        ("#define HEADER <cudnn.h>\n#include HEADER\n", "library-header", 2),
        ("#ifdef __CUDA_ARCH__\n#include <cudnn.h>\n#endif\n", "library-header", 2),
        ("#ifndef __CUDA_ARCH__\n#include <cudnn.h>\n#endif\n", "library-header", 2),
        ("#include <no_such_header.h>\n#include <torch/extension.h>\n", "library-header", 2),
        ('#include "third_party/cutlass/cutlass.h"\n#error not reached\n', "library-header", 1),
        ("#define OPEN(x) dl##x\nvoid* h = (void*)OPEN(open);\n", "dynamic-loading", 2),
        ('#define NAME "cuModule" "LoadData"\nint g = cudaGetDriverEntryPoint(NAME, 0, 0);\n', "driver-entry-point", 2),
        ('#line 1 "/usr/include/stdio.h"\nvoid* h = (void*)dlopen;\n', "dynamic-loading", 1),
        ('# 1 "/usr/include/stdio.h" 1\nvoid* h = (void*)dlopen;\n# 4 "kernel.cu" 2\n', "line-directive", 1),
        ('#include "/etc/hostname"\n', "foreign-header", 1),
        ('#include "/proc/self/cwd/kernel.cu"\n', "foreign-header", 1),
        (
            '#ifndef AGAIN\n#define AGAIN\n#include "kernel.cu"\n#else\nvoid* h = (void*)dlopen;\n#endif\n',
            "foreign-header",
            3,
        ),
    ],
)
def test_what_is_found(screen: Screen, source: str, rule: str, line: int | None):
    assert (rule, line) in met(screen(source + KERNEL))


def test_a_missing_header_of_no_library_is_an_error_in_the_compiler_s_words(screen: Screen):
    with pytest.raises(StepError) as caught:
        screen("#include <no_such_header.h>\n")
    assert caught.value.step == "host_preprocess"
    assert "fatal error: no_such_header.h: No such file" in caught.value.result.output


def test_a_header_that_only_one_half_misses(screen: Screen):
    with pytest.raises(StepError) as caught:
        screen("#ifdef __CUDA_ARCH__\n#include <no_such_header.h>\n#endif\n")
    assert caught.value.step == "device_preprocess"


@pytest.mark.parametrize(
    "source",
    [
        "#include <one>\n#include <one/two.h>\n",
        "#include <one/two.h>\n#include <one>\n",
        f"#include <{'a/' * 1990}x.h>\n",
        f"#include <{'a' * 300}.h>\n",
    ],
)
def test_no_missing_header_can_be_named_so_that_the_machinery_fails(screen: Screen, source: str):
    with pytest.raises(StepError) as caught:
        screen(source)
    assert "fatal error: " in caught.value.result.output


def test_findings_of_both_halves_are_told_once_and_in_order(screen: Screen):
    findings = screen("void* a = (void*)dlsym;\n#include <cudnn.h>\nvoid* b = (void*)dlopen;\n")
    assert [finding.line for finding in findings] == [1, 2, 3]


def test_a_source_that_explodes_is_an_error(screen: Screen, monkeypatch: pytest.MonkeyPatch):
    assert screen(KERNEL) == []
    monkeypatch.setattr(preprocessing, "MAX_PREPROCESSED_BYTES", 1 << 20)
    with pytest.raises(StepError) as caught:
        screen("#include <vector>\n" + KERNEL)
    assert caught.value.result.output == "the preprocessed source has more than 1 MiB\n"


def test_a_preprocessor_that_writes_something_else_is_the_machinery_s_fault(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(translation, "FORCED_HEADER", "other.h")
    with pytest.raises(InfrastructureError, match=r"other\.h in front of kernel\.cu"):
        screen(KERNEL)
