"""The toolchain with the real nvcc: what is built, inspected, refused, limited, cached."""

import contextlib
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
from tests.unit.toolchain.parts import EXPORT, HOPPER, MINIMAL, Arch, shared_cache

BLACKWELL = Arch("b200", "arch=compute_100a,code=sm_100a")

# Internal linkage, static device memory, __FILE__, assert, dates: all that a path or a clock could leak through.
# TMA is there for the static fact and for the driver call; talk of libraries, since no honest kernel may suffer for it.
KERNEL = """// A cuBLAS-like GEMM: beats cublasGemmEx without dlopen("libcublas.so").
#include <cuda.h>
#include <cuda_bf16.h>
#include <cassert>
#include <cstdio>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
namespace {
__device__ int counter;
__global__ void scale(const __nv_bfloat16* x, __nv_bfloat16* y, const __grid_constant__ CUtensorMap map) {
  __shared__ alignas(128) char tile[1024];
  assert(x != y);
  static_assert(__TIMESTAMP__[11] == '0' && __TIMESTAMP__[20] == '1' && __TIMESTAMP__[22] == '7', "1970, at 00:00");
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(tile))), "l"(&map), "r"(0),
               "r"(static_cast<unsigned>(__cvta_generic_to_shared(tile + 512))) : "memory");
  y[threadIdx.x] = __hmul(x[threadIdx.x], __float2bfloat16(2.0f + counter + sizeof(__FILE__) + sizeof(__TIME__)));
}
}  // namespace
namespace cublas_like {
extern "C" __global__ void cudnnStyleKernel(float* x) { printf("system cuModuleLoad %f", x[0]); }
}
static void* encoder() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &status);
  cublas_like::cudnnStyleKernel<<<1, 1>>>(static_cast<float*>(f));
  return f;
}
void* keep = encoder();
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


@pytest.fixture(scope="session")
def tools() -> Tools:
    return discover()


@pytest.fixture(scope="session")
def toolchain(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(tools, BuildCache(shared_cache(tmp_path_factory)))


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
    opcodes = {kernel.kernel: kernel.opcodes for kernel in cubin.kernels}
    (scale,) = opcodes.keys() - {"cudnnStyleKernel"}
    assert "scale" in scale
    assert [opcodes[name].get("UTMALDG") for name in (scale, "cudnnStyleKernel")] == [1, None]
    resources = {entry.kernel: entry for entry in build.resources}
    assert resources.keys() == opcodes.keys()
    assert resources[scale].static_smem_bytes == 1024
    assert resources[scale].registers > 0
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


@pytest.fixture(scope="session")
def elsewhere(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """Another folder, another toolkit of the same version if this machine has one, and no disassembler."""
    folder = shared_cache(tmp_path_factory).with_name("a longer path") / "with blanks"
    try:
        wheels = discover({"PATH": str(tools.host.path.parent)})
    except InfrastructureError:
        wheels = tools
    other = wheels if wheels.compiler.version == tools.compiler.version else tools
    return Toolchain(other._replace(disassembler=None), BuildCache(folder))


def test_the_device_code_is_the_same_in_every_folder_and_from_every_toolkit(built: Built, elsewhere: Toolchain):
    rebuilt = elsewhere.build(Candidate(source=KERNEL), HOPPER).build
    assert rebuilt.cubin_sha256 == built.build.cubin_sha256
    assert sorted(rebuilt.kernels) == sorted(built.build.kernels)
    assert rebuilt.toolchain.origin == elsewhere.tools.compiler.origin


def test_without_a_disassembler_kernels_are_named_and_nothing_is_claimed(built: Built, elsewhere: Toolchain):
    build = elsewhere.build(Candidate(source=KERNEL), HOPPER).build
    assert (build.status, build.inspection, build.toolchain.disassembler) == (BuildStatus.OK, "unavailable", "none")
    assert sorted(build.kernels) == sorted(built.build.kernels)
    assert [kernel.opcodes for kernel in build.cubins[0].kernels] == [{}, {}]


def test_the_same_source_again_starts_no_process(
    built: Built, tools: Tools, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a process was started: {args}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    again = Toolchain(tools, BuildCache(shared_cache(tmp_path_factory)))
    assert again.build(Candidate(source=KERNEL), HOPPER) == built
    with pytest.raises(AssertionError, match="a process was started"):
        again.build(Candidate(source=KERNEL + "// another"), HOPPER)


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


def test_another_architecture(toolchain: Toolchain):
    source = (
        MINIMAL
        + """__global__ void load(const __grid_constant__ CUtensorMap map) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(0), "l"(&map), "r"(0), "r"(512) : "memory");
}
"""
    )
    build = toolchain.build(Candidate(source="#include <cuda.h>\n" + source), BLACKWELL).build
    assert (build.status, build.cubins[0].arch) == (BuildStatus.OK, "sm_100a")
    assert "UTMALDG" in build.cubins[0].kernels[0].opcodes


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
    build = rejected("__global__ void k() { undefined_name = 1; }\n").build
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, False)
    assert 'kernel.cu(1): error: identifier "undefined_name" is undefined' in build.log
    assert build.log.count("undefined_name = 1") == 1  # once, though both halves reject it


def test_an_error_of_ptx_is_told_and_not_built_again(rejected: Callable[[str], Built]):
    build = rejected(EXPORT + '__global__ void k() { asm volatile("wgmma.nonsense;"); }\n').build
    assert build.status is BuildStatus.COMPILE_ERROR
    assert "ptxas" in build.log
    assert "nonsense" in build.log
    assert build.toolchain.headers == "light"


def test_a_missing_function_is_an_error_of_the_link(rejected: Callable[[str], Built]):
    build = rejected('extern "C" int nowhere(int);\nint f() { return nowhere(1); }\n').build
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
        ("#include <cudnn.h>\nthis is no C++\n", "library-header"),
        ('extern "C" int cublasSgemm_v2(int);\nint f() { return cublasSgemm_v2(1); }\n', "library-function"),
        ('int hidden(int) __asm__("cublasSgemm_v2");\nint f() { return hidden(1); }\n', "library-symbol"),
        ('__attribute__((section(".nv_fat" "bin"), used)) long blob = 1;\n', "embedded-device-code"),
        ("namespace cutlass { __global__ void device_kernel(int* x) { x[0] = 1; } }\n", "library-symbol"),
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
    toolchain = limited(tools, tmp_path, seconds=0.5)
    build = toolchain.build(Candidate(source=EXPLODING), HOPPER).build
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, True)
    assert "compilation stopped after 0.5 s, its time limit, while" in build.log
    assert list((tmp_path / "builds").iterdir()) == []  # on a faster machine it may succeed
    assert list((tmp_path / "work").iterdir()) == []


def test_the_memory_limit(tools: Tools, tmp_path: Path):
    toolchain = limited(tools, tmp_path, memory_bytes=200 << 20)
    build = toolchain.build(Candidate(source=EXPLODING), HOPPER).build
    assert (build.status, build.timed_out) == (BuildStatus.COMPILE_ERROR, False)
    assert "needed more memory than the limit" in build.log
    assert list((tmp_path / "builds").iterdir()) == []


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


class Shared(NamedTuple):
    cache: Path
    reports: list[dict[str, Any]]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """A cache that two processes filled at the same time, and what each of them got."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "kernel.cu").write_text(MINIMAL)
    processes = [start_build(folder / "cache", folder / "kernel.cu") for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines()[1] for process in processes]
    return Shared(folder / "cache", [json.loads(output) for output in outputs])


def test_two_processes_build_once_and_agree(shared: Shared):
    first, second = shared.reports
    assert first == second
    assert list((shared.cache / "work").iterdir()) == []
    assert len(list((shared.cache / "builds").glob("*/*"))) == 1


def test_a_damaged_object_is_built_again(shared: Shared, tools: Tools):
    path = Path(shared.reports[0]["so"])
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-1] + b"?")
    built = Toolchain(tools, BuildCache(shared.cache)).build(Candidate(source=MINIMAL), HOPPER)
    assert (built.so_path, built.build.so_sha256) == (path, shared.reports[0]["sha"])
    assert path.read_bytes() == content


def test_a_killed_build_leaves_nothing_that_counts(tools: Tools, tmp_path: Path):
    source = tmp_path / "kernel.cu"
    source.write_text(EXPLODING)
    process = start_build(tmp_path / "cache", source)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "cache/work").glob("*/*.kept")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert list((tmp_path / "cache/builds").rglob("*")) == []
    assert list((tmp_path / "cache/work").iterdir()) != []
    cache = BuildCache(tmp_path / "cache")
    # A child that was just being started holds the dead process's lock until it is a compiler.
    while list((tmp_path / "cache/work").iterdir()) and time.monotonic() < deadline:
        kill_processes_in(tmp_path)
        time.sleep(0.02)
        cache.remove_stale_work()
    assert list((tmp_path / "cache/work").iterdir()) == []
    toolchain = Toolchain(tools, cache)
    assert toolchain.build(Candidate(source=MINIMAL), HOPPER).so_path is not None


def kill_processes_in(folder: Path) -> None:
    """Ends the compilers that the killed process left behind: they are recognised by their working folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if entry.joinpath("cwd").readlink().is_relative_to(folder):
                    os.kill(int(entry.name), signal.SIGKILL)


def test_a_cache_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="PTXBENCH_CACHE"):
        Toolchain.discover(tmp_path / "file")
