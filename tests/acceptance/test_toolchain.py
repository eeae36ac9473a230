"""The toolchain with the real nvcc: what is built, inspected, refused, limited, cached."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Built, Limits, Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import Tools, discover
from ptxbench.toolchain.elf import Elf

PARITY = Path(__file__).parents[1] / "unit/toolchain/sources/parity.cu"


class Arch(NamedTuple):
    name: str
    gencode: str


HOPPER = Arch("h100", "arch=compute_90a,code=sm_90a")
BLACKWELL = Arch("b200", "arch=compute_100a,code=sm_100a")

# Internal linkage, static device memory, __FILE__, assert and the date: all that a path or a clock could leak through.
# TMA is there for the static fact and for the driver call.
KERNEL = """#include <cuda.h>
#include <cuda_bf16.h>
#include <cassert>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
namespace {
__device__ int counter;
__global__ void scale(const __nv_bfloat16* x, __nv_bfloat16* y, const __grid_constant__ CUtensorMap map) {
  __shared__ alignas(128) char tile[1024];
  assert(x != y);
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(tile))), "l"(&map), "r"(0),
               "r"(static_cast<unsigned>(__cvta_generic_to_shared(tile + 512))) : "memory");
  y[threadIdx.x] = __hmul(x[threadIdx.x], __float2bfloat16(2.0f + counter + sizeof(__FILE__) + sizeof(__TIME__)));
}
}  // namespace
static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  CUtensorMap map{};
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data_ptr(), nullptr, nullptr, nullptr, nullptr,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale<<<1, 32, 0, stream>>>(static_cast<const __nv_bfloat16*>(x.data_ptr()),
                              static_cast<__nv_bfloat16*>(y.data_ptr()), map);
  if (cudaGetLastError() != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch failed";
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""

EXPLODING = """
template <int N, int M> struct Tree { static constexpr long v = Tree<N - 1, 2 * M>::v + Tree<N - 1, 2 * M + 1>::v; };
template <int M> struct Tree<0, M> { static constexpr long v = M; };
long leaves = Tree<24, 0>::v;
"""

EXPORT = """
#include <tvm/ffi/tvm_ffi.h>
static void run(tvm::ffi::TensorView) {}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""


@pytest.fixture(scope="session")
def tools() -> Tools:
    return discover()


@pytest.fixture(scope="session")
def toolchain(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(tools, BuildCache(tmp_path_factory.mktemp("toolchain-cache")))


@pytest.fixture(scope="session")
def built(toolchain: Toolchain) -> Built:
    return toolchain.build(Candidate(source=KERNEL), HOPPER)


def limited(tools: Tools, folder: Path, **limits: Any) -> Toolchain:
    return Toolchain(tools, BuildCache(folder), Limits()._replace(**limits))


def test_a_kernel_is_built_and_inspected(built: Built, tools: Tools):
    build = built.build
    assert (build.status, build.log, build.findings, build.inspection) == (BuildStatus.OK, "", (), "ok")
    assert built.so_path is not None
    elf = Elf(built.so_path.read_bytes())
    assert {"libcuda.so.1", "libtvm_ffi.so"} <= set(elf.needed())
    assert [s.name for s in elf.symbols(".dynsym") if s.defined] == ["__tvm_ffi_run"]
    (cubin,) = build.cubins
    assert cubin.arch == "sm_90a"
    assert build.cubin_sha256 == cubin.sha256
    (kernel,) = cubin.kernels
    assert "scale" in kernel.kernel
    assert kernel.opcodes["UTMALDG"] == 1
    (resources,) = build.resources
    assert resources.kernel == kernel.kernel
    assert resources.static_smem_bytes == 1024
    assert resources.registers > 0
    assert build.toolchain.headers == "light"
    assert build.toolchain.nvcc == tools.compiler.version
    assert "-O3" in build.toolchain.flags
    assert build.toolchain.flags[-2:] == ("-gencode", HOPPER.gencode)


def test_the_object_loads_where_its_libraries_are(built: Built, tools: Tools):
    # The stand-in for libcuda takes the driver's place, which this test does not need.
    assert built.so_path is not None
    (stub,) = (built.so_path.parents[3] / "artefacts").iterdir()
    (stub / "libcuda.so.1").unlink(missing_ok=True)
    (stub / "libcuda.so.1").symlink_to("libcuda.so")
    script = f"import ctypes; ctypes.CDLL({str(built.so_path)!r}).__tvm_ffi_run"
    libraries = os.pathsep.join([str(stub), str(tools.tvm_ffi.library_dir)])
    environ = os.environ | {"LD_LIBRARY_PATH": libraries, "LD_BIND_NOW": "1"}
    subprocess.run([sys.executable, "-c", script], env=environ, check=True)


def test_the_record_names_no_path_of_this_machine(built: Built, tools: Tools):
    text = built.build.model_dump_json()
    for path in (tools.compiler.nvcc.parent, tools.tvm_ffi.include_dir, Path.home(), Path(tempfile.gettempdir())):
        assert str(path) not in text
    assert built.so_path is not None
    assert str(built.so_path.parents[3]).encode() not in built.so_path.read_bytes()


def test_the_device_code_is_the_same_in_every_folder_and_from_every_toolkit(
    built: Built, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    bare = {"PATH": str(tools.host.path.parent)}
    try:
        wheels = discover(bare)
    except InfrastructureError:
        pytest.skip("no toolkit from the pip wheels")
    if wheels.compiler.nvcc == tools.compiler.nvcc or wheels.compiler.version != tools.compiler.version:
        wheels = tools  # the same toolkit, another folder
    other = Toolchain(wheels, BuildCache(tmp_path / "a longer path" / "with blanks"))
    rebuilt = other.build(Candidate(source=KERNEL), HOPPER).build
    assert rebuilt.cubin_sha256 == built.build.cubin_sha256
    assert rebuilt.kernels == built.build.kernels
    assert other.identity.origin == wheels.compiler.origin


def test_the_same_source_again_is_a_cache_hit(built: Built, toolchain: Toolchain):
    started = time.perf_counter()
    again = toolchain.build(Candidate(source=KERNEL), HOPPER)
    assert again == built
    assert time.perf_counter() - started < 0.1


def test_what_decides_a_build_decides_its_key(toolchain: Toolchain, tools: Tools, tmp_path: Path):
    candidate = Candidate(source=KERNEL)
    disassembler = tools.disassembler
    assert disassembler is not None
    newer = tools._replace(disassembler=disassembler._replace(version="99.0"))
    cache = BuildCache(tmp_path)
    keys = {
        Toolchain(tools, cache)._key(candidate, HOPPER),
        Toolchain(tools, cache)._key(candidate, BLACKWELL),
        Toolchain(tools, cache)._key(Candidate(source=KERNEL + "\n"), HOPPER),
        Toolchain(newer, cache)._key(candidate, HOPPER),
    }
    assert len(keys) == 4
    assert toolchain._key(candidate, HOPPER) in keys


def test_light_compiles_in_half_the_naive_time(tools: Tools, toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "kernel.cu").write_text(KERNEL)
    ffi = tools.tvm_ffi
    naive = [str(tools.compiler.nvcc), "-O3", "-shared", "-Xcompiler", "-fPIC", "-gencode", HOPPER.gencode]
    started = time.perf_counter()
    subprocess.run([*naive, f"-I{ffi.include_dir}", "kernel.cu", "-o", "naive.so"], cwd=tmp_path, check=True)
    naive_seconds = time.perf_counter() - started
    ours = []
    for number in range(2):
        started = time.perf_counter()
        toolchain.build(Candidate(source=KERNEL + "\n" * (number + 1)), HOPPER)
        ours.append(time.perf_counter() - started)
    assert min(ours) < 0.5 * naive_seconds


def test_another_architecture(toolchain: Toolchain):
    build = toolchain.build(Candidate(source=KERNEL), BLACKWELL).build
    assert (build.status, build.cubins[0].arch) == (BuildStatus.OK, "sm_100a")
    assert "UTMALDG" in build.cubins[0].kernels[0].opcodes


def test_without_a_disassembler_kernels_are_named_and_nothing_is_claimed(tools: Tools, tmp_path: Path, built: Built):
    blind = Toolchain(tools._replace(disassembler=None), BuildCache(tmp_path))
    build = blind.build(Candidate(source=KERNEL), HOPPER).build
    assert (build.status, build.inspection, build.toolchain.disassembler) == (BuildStatus.OK, "unavailable", "none")
    assert build.cubin_sha256 == built.build.cubin_sha256
    assert build.kernels == built.build.kernels
    assert build.cubins[0].kernels[0].opcodes == {}


class Parity(NamedTuple):
    light: Any
    full: Any


@pytest.fixture(scope="session")
def parity(toolchain: Toolchain) -> Parity:
    """One source built with both kinds of headers and loaded."""
    import tvm_ffi

    source = PARITY.read_text()
    light = toolchain.build(Candidate(source=source), HOPPER)
    full = toolchain.build(Candidate(source=source + "// tvm::ffi::Tensor\n"), HOPPER)
    assert (light.build.toolchain.headers, full.build.toolchain.headers) == ("light", "full")
    assert (light.build.log, full.build.log) == ("", "")
    return Parity(tvm_ffi.load_module(str(light.so_path)), tvm_ffi.load_module(str(full.so_path)))


def tensors() -> dict[str, Any]:
    import numpy as np
    import tvm_ffi

    arrays = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "output": np.zeros((2, 3), dtype=np.float32),
        "strided": np.arange(24, dtype=np.int16).reshape(4, 6)[::2, 1::2],
        "empty": np.zeros((0, 3)),
        "scalar": np.array(1.0),
        "vector": np.zeros(5, dtype=np.float32),
    }
    return {name: tvm_ffi.from_dlpack(array) for name, array in arrays.items()}


CALLS: list[tuple[Any, ...]] = [
    *(("run", "$matrix", "$output"), ("run", "$matrix"), ("run",), ("run", "$matrix", "$output", "$output")),
    *(("run", "$matrix", 1), ("run", 1, "$matrix"), ("run", 1, "text"), ("run", None, "$matrix")),
    *(("run", "$matrix", "$vector"), ("run", "$vector", "$matrix")),
    *(("digest", name) for name in ("$matrix", "$strided", "$empty", "$scalar", "$vector", 3)),
    *(("front_and_back", "$matrix"), ("front_and_back", "$scalar")),
    *(("at", "$matrix", index) for index in (0, 1, 2, -1)),
    *((name, "$matrix", index) for name in ("size", "stride") for index in (0, 1, -1, -2, 2, -3)),
    *(("scalars", 1, 2.5, True, 0.5, 3, 4), ("scalars", 1, 2, 1, 1, True, False), ("scalars", -1, 0, 0, 0, 0, -1)),
    *(("scalars", 1.5, 2.5, True, 0.5, 3, 4), ("scalars", 1, "2", 1, 1, 1, 1), ("scalars", 2**70, 2, 1, 1, 1, 1)),
    *(("narrow", 2**33 + 1), ("narrow", 2.0), ("negate", True), ("negate", 1), ("negate", 0.0)),
    *(("is_null", None), ("is_null", 3), ("raw", "$matrix"), ("raw", 3), ("nothing",), ("nothing", 1)),
    *(("stream_is_default",), ("functor", 4), ("functor", "text"), ("caught",)),
    *(("print", "$matrix", which) for which in range(10)),
    *(("compare", which, a, b) for which in range(13) for a, b in ((1, 2), (2, 1), (1, 1))),
]


def outcome(module: Any, call: tuple[Any, ...]) -> tuple[str, str]:
    given = tensors()
    arguments = [given[a[1:]] if isinstance(a, str) and a.startswith("$") else a for a in call[1:]]
    try:
        value = getattr(module, call[0])(*arguments)
    except Exception as error:  # any kind of error is an outcome to compare
        return type(error).__name__, str(error)
    import numpy as np

    return type(value).__name__, f"{value} {np.from_dlpack(given['output']).tolist()}"


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_both_kinds_of_headers_behave_alike(parity: Parity, call: tuple[Any, ...]):
    assert outcome(parity.light, call) == outcome(parity.full, call)


def test_the_comparison_sees_results_and_messages(parity: Parity):
    assert outcome(parity.light, ("run", "$matrix", "$output")) == (
        "NoneType",
        "None [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
    )
    assert outcome(parity.light, ("run", "$matrix")) == (
        "TypeError",
        "Mismatched number of arguments when calling: `run(0: DLTensor*, 1: DLTensor*) -> void`. "
        "Expected 2 but got 1 arguments",
    )


def test_what_the_light_headers_lack_is_built_with_the_full_ones(toolchain: Toolchain):
    # std::vector comes with the full headers only, and std::hex is for real streams.
    source = """#include <tvm/ffi/tvm_ffi.h>
static int64_t run(tvm::ffi::TensorView x) {
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  if (sizes.empty()) TVM_FFI_THROW(ValueError) << std::hex << 255;
  return static_cast<int64_t>(sizes.size());
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
    build = toolchain.build(Candidate(source=source), HOPPER).build
    assert (build.status, build.toolchain.headers) == (BuildStatus.OK, "full")


@pytest.fixture(scope="session")
def rejected(toolchain: Toolchain) -> Callable[[str], Built]:
    def build(source: str) -> Built:
        result = toolchain.build(Candidate(source=source), HOPPER)
        assert result.so_path is None
        assert result.build.so_sha256 is None
        assert result.build.cubins == ()
        return result

    return build


def test_an_error_of_the_language_is_told_in_the_compiler_s_words(rejected: Callable[[str], Built]):
    build = rejected(EXPORT + "__global__ void k() { undefined_name = 1; }\n").build
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, False)
    assert 'kernel.cu(5): error: identifier "undefined_name" is undefined' in build.log
    assert build.log.count("undefined_name = 1") == 1  # once, though both halves reject it
    assert build.toolchain.headers == "full"


def test_an_error_of_ptx_is_told_and_not_built_again(rejected: Callable[[str], Built]):
    build = rejected(EXPORT + '__global__ void k() { asm volatile("wgmma.nonsense;"); }\n').build
    assert build.status is BuildStatus.COMPILE_ERROR
    assert "ptxas" in build.log
    assert "nonsense" in build.log
    assert build.toolchain.headers == "light"


def test_a_missing_function_is_an_error_of_the_link(rejected: Callable[[str], Built]):
    build = rejected(EXPORT + 'extern "C" int nowhere(int);\nint f() { return nowhere(1); }\n').build
    assert build.status is BuildStatus.COMPILE_ERROR
    assert "undefined reference to `nowhere'" in build.log
    assert "/tmp" not in build.log


def test_a_missing_entry_says_what_to_write(rejected: Callable[[str], Built]):
    build = rejected("__global__ void k() {}\n").build
    assert build.status is BuildStatus.COMPILE_ERROR
    assert (
        "kernel.cu exports no function named run: end it with TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, FUNCTION);"
        in build.log
    )


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("#include <cudnn.h>\n" + EXPORT, "library-header"),
        ("#include <cudnn.h>\nthis is no C++\n", "library-header"),
        (EXPORT + 'extern "C" int cublasSgemm_v2(int);\nint f() { return cublasSgemm_v2(1); }\n', "library-function"),
        (EXPORT + 'int hidden(int) __asm__("cublasSgemm_v2");\nint f() { return hidden(1); }\n', "library-symbol"),
        (EXPORT + '__attribute__((section(".nv_fat" "bin"), used)) long blob = 1;\n', "embedded-device-code"),
        (
            EXPORT + "namespace cutlass { __global__ void device_kernel(int* x) { x[0] = 1; } }\n",
            "library-symbol",
        ),
    ],
)
def test_screened_candidates(rejected: Callable[[str], Built], source: str, rule: str):
    build = rejected(source).build
    assert build.status is BuildStatus.SCREENED
    assert rule in {finding.rule for finding in build.findings}
    assert build.log == ""


def test_a_bad_entry_is_the_user_s_error(toolchain: Toolchain):
    with pytest.raises(InputError, match=r"expected an entry FILE::FUNCTION.*found 'kernel.cu::ru-n'"):
        toolchain.build(Candidate(source=EXPORT, entry="kernel.cu::ru-n"), HOPPER)


def test_an_architecture_that_nvcc_does_not_know(toolchain: Toolchain):
    with pytest.raises(InfrastructureError, match="compute_1a") as caught:
        toolchain.build(Candidate(source=EXPORT), Arch("old", "arch=compute_1a,code=sm_1a"))
    assert caught.value.kind == "compiler_missing"


def test_the_time_limit(tools: Tools, tmp_path: Path):
    toolchain = limited(tools, tmp_path, seconds=2.0)
    started = time.perf_counter()
    build = toolchain.build(Candidate(source=EXPORT + EXPLODING), HOPPER).build
    assert time.perf_counter() - started < 15
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, True)
    assert "compilation stopped after 2 s, its time limit, while" in build.log
    assert list((tmp_path / "builds").iterdir()) == []  # on a faster machine it may succeed
    assert list((tmp_path / "work").iterdir()) == []


def test_the_memory_limit(tools: Tools, tmp_path: Path):
    toolchain = limited(tools, tmp_path, memory_bytes=700 << 20)
    build = toolchain.build(Candidate(source=EXPORT + EXPLODING), HOPPER).build
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, False)
    assert "needed more memory than the limit" in build.log


def test_a_tool_that_is_missing_from_the_toolkit(tools: Tools, tmp_path: Path):
    toolchain = Toolchain(tools, BuildCache(tmp_path))
    plan = toolchain._plan(HOPPER.gencode, "light")
    toolchain._plans[HOPPER.gencode, "light"] = plan._replace(assemble=("no-such-ptxas", *plan.assemble[1:]))
    with pytest.raises(InfrastructureError, match="expected no-such-ptxas in the CUDA toolkit") as caught:
        toolchain.build(Candidate(source=EXPORT), HOPPER)
    assert caught.value.kind == "compiler_missing"
    assert list((tmp_path / "work").iterdir()) == []


BUILD_SCRIPT = """
import json, sys, time
from pathlib import Path
from typing import NamedTuple
from ptxbench.records import Candidate
from ptxbench.toolchain import Limits, Toolchain
class Arch(NamedTuple):
    name: str
    gencode: str
toolchain = Toolchain.discover(Path(sys.argv[1]), limits=Limits(seconds=20))
print("ready", flush=True)
built = toolchain.build(Candidate(source=Path(sys.argv[2]).read_text()), Arch("h100", "arch=compute_90a,code=sm_90a"))
print(json.dumps({"so": str(built.so_path), "sha": built.build.so_sha256, "inode": built.so_path.stat().st_ino}))
"""


def start_build(cache: Path, source: Path) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    argv = [sys.executable, "-c", BUILD_SCRIPT, str(cache), str(source)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ)


def test_two_processes_build_once_and_agree(tmp_path: Path):
    source = tmp_path / "kernel.cu"
    source.write_text(EXPORT)
    processes = [start_build(tmp_path / "cache", source) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines()[1] for process in processes]
    first, second = (json.loads(output) for output in outputs)
    assert first == second
    assert list((tmp_path / "cache/work").iterdir()) == []


def test_a_killed_build_leaves_nothing_that_counts(tools: Tools, tmp_path: Path):
    source = tmp_path / "kernel.cu"
    source.write_text(EXPORT + EXPLODING)
    process = start_build(tmp_path / "cache", source)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "cache/work").glob("*/*.kept")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kill_processes_in(tmp_path)
    assert list((tmp_path / "cache/builds").rglob("*")) == []
    assert list((tmp_path / "cache/work").iterdir()) != []
    toolchain = Toolchain(tools, BuildCache(tmp_path / "cache"))
    assert list((tmp_path / "cache/work").iterdir()) == []
    assert toolchain.build(Candidate(source=EXPORT), HOPPER).so_path is not None


def kill_processes_in(folder: Path) -> None:
    """Ends the compilers that the killed process left behind: they are recognised by their working folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                inside = str(entry.joinpath("cwd").readlink()).startswith(str(folder))
            except OSError:
                continue
            if inside:
                os.kill(int(entry.name), signal.SIGKILL)


def test_a_damaged_object_is_built_again(tools: Tools, tmp_path: Path):
    toolchain = Toolchain(tools, BuildCache(tmp_path))
    first = toolchain.build(Candidate(source=EXPORT), HOPPER)
    assert first.so_path is not None
    content = first.so_path.read_bytes()
    first.so_path.chmod(0o644)
    first.so_path.write_bytes(content[:-1] + b"?")
    again = toolchain.build(Candidate(source=EXPORT), HOPPER)
    assert again == first
    assert first.so_path.read_bytes() == content


def test_a_cache_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="PTXBENCH_CACHE"):
        Toolchain.discover(tmp_path / "file")


def test_an_honest_kernel_that_talks_of_libraries(toolchain: Toolchain):
    source = (
        """// A cuBLAS-like GEMM: beats cublasGemmEx without dlopen("libcublas.so").
#include <cooperative_groups.h>
#include <cstdio>
#include <cuda/barrier>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>
"""
        + EXPORT
        + """
namespace cublas_like {
extern "C" __global__ void cudnnStyleKernel(float* x) {
  cooperative_groups::this_thread_block().sync();
  printf("system cuModuleLoad %f", x[0]);
}
}
static void* encoder() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &status);
  cublas_like::cudnnStyleKernel<<<1, 1>>>(static_cast<float*>(f));
  return f;
}
void* keep = encoder();
"""
    )
    build = toolchain.build(Candidate(source=source), HOPPER).build
    assert (build.status, build.findings, build.log) == (BuildStatus.OK, (), "")
    assert build.kernels == ("cudnnStyleKernel",)


def test_nothing_is_left_in_the_work_folder(toolchain: Toolchain, built: Built):
    assert built.so_path is not None
    assert list((built.so_path.parents[3] / "work").iterdir()) == []
