"""The screen's tables: which headers, names and symbols a candidate may not use (PROTOCOL 4.1, THREATS "library").

Every entry names something that computes for the candidate, or that brings in code which the harness did not compile.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class ScreenRule(StrEnum):
    """The screen's rules, as findings name them. The judge has a rule of its own for each (docs/verdict-rules.md)."""

    LIBRARY_HEADER = "library-header"
    FOREIGN_HEADER = "foreign-header"
    LINE_DIRECTIVE = "line-directive"
    LIBRARY_FUNCTION = "library-function"
    LIBRARY_SYMBOL = "library-symbol"
    DYNAMIC_LOADING = "dynamic-loading"
    DEVICE_CODE_LOADING = "device-code-loading"
    DRIVER_ENTRY_POINT = "driver-entry-point"
    EMBEDDED_DEVICE_CODE = "embedded-device-code"
    EMBEDDED_FILE = "embedded-file"
    PROCESS_CREATION = "process-creation"
    HOST_CALLBACK = "host-callback"
    UNREADABLE_OBJECT = "unreadable-object"


class Library(NamedTuple):
    """A kernel library: how its headers, its C functions and its C++ namespaces are recognised."""

    title: str
    headers: str = ""
    """Regular expression over an include path below its search folder."""
    functions: str = ""
    """Prefix, as a regular expression, of the library's C functions."""
    namespaces: tuple[str, ...] = ()


LIBRARIES = (
    Library("cuBLAS", r"(cublas\w*|nvblas)\.h(pp)?", r"cublas(Lt|Xt|Mp|Dx)?[A-Z]|nvblas_"),
    Library("cuDNN", r"cudnn\w*\.h|cudnn_frontend/.*", r"cudnn[A-Z]", ("cudnn_frontend",)),
    Library("cuSPARSE", r"cusparse\w*\.h", r"cusparse(Lt)?[A-Z]"),
    Library("cuSOLVER", r"cusolver\w*\.h(pp)?", r"cusolver(Dn|Sp|Rf|Mg|Mp)?[A-Z]"),
    Library("cuFFT", r"cufft\w*\.h(pp)?", r"cufft(Xt|Mp)?[A-Z]"),
    Library("cuRAND", r"curand\.h", r"curand(Create|Destroy|Generate|Set|Get)"),
    Library("cuTENSOR", r"cutensor\w*\.h", r"cutensor(Mg|Mp)?[A-Z]"),
    Library("NPP", r"npp\w*\.h", r"npp[is]?[A-Z]"),
    Library("NCCL", r"nccl\w*\.h", r"p?nccl[A-Z]"),
    Library("NVSHMEM", r"nvshmemx?\w*\.h", r"nvshmemx?_"),
    Library("NVRTC", r"nvrtc\w*\.h", r"nvrtc[A-Z]"),
    Library("nvJitLink", r"nvJitLink\w*\.h", r"_*nvJitLink"),
    Library("nvPTXCompiler", r"nvPTXCompiler\.h", r"nvPTXCompiler"),
    Library("nvFatbin", r"nvFatbin\.h", r"nvFatbin"),
    Library("CUTLASS", r"cutlass/.*", namespaces=("cutlass",)),
    Library("CuTe", r"cute/.*", namespaces=("cute",)),
    Library("CUB device algorithms", r"cub/cub\.cuh|cub/device/.*", namespaces=("cub",)),
    Library("Thrust", r"thrust/.*", namespaces=("thrust",)),
    Library("FlashInfer", r"flashinfer/.*", namespaces=("flashinfer",)),
    Library("FlashAttention", r"flash_attn\w*/.*|flash_attn\w*\.h|flash_fwd\w*\.h|flash_bwd\w*\.h"),
    Library("DeepGEMM", r"deep_gemm/.*", namespaces=("deep_gemm",)),
    Library("ThunderKittens", r"(thunder)?kittens(\.cuh|/.*)", namespaces=("kittens",)),
    Library("TensorRT", r"NvInfer\w*\.h"),
    Library(
        "PyTorch", r"(torch|ATen|c10|caffe2)/.*", r"aoti_torch_|_ZN?K?(2at|3c10|5torch)", ("at::native", "c10", "torch")
    ),
    Library("Python", r"Python\.h|pybind11/.*|nanobind/.*", r"Py[A-Z_]\w*", ("pybind11", "nanobind")),
)

_HEADERS = tuple((re.compile(rf"(?:.*/)?(?:{entry.headers})"), entry.title) for entry in LIBRARIES if entry.headers)
_FUNCTIONS = tuple((re.compile(entry.functions), entry.title) for entry in LIBRARIES if entry.functions)
_NAMESPACES = {
    "".join(f"{len(part)}{part}" for part in name.split("::")): entry.title
    for entry in LIBRARIES
    for name in entry.namespaces
}
"""As they are mangled."""
# Templates of these are used inside kernels as well; only a kernel of the library's own is its algorithm.
_KERNEL_NAMESPACE = re.compile("_ZN(" + "|".join(sorted(_NAMESPACES)) + r")(?=\d|[A-Z])")

DYNAMIC_LOADING = frozenset(
    {
        *("dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode", "__libc_dlsym", "dl_iterate_phdr"),
        *("dlinfo", "dladdr1", "_dl_find_object", "_r_debug"),
        # What glibc's own libraries find code by, and what loads a library for a name or for an environment variable.
        *("_rtld_global", "_rtld_global_ro", "_dl_find_dso_for_object", "_dl_rtld_di_serinfo"),
        *("__nss_lookup_function", "__nss_configure_lookup", "iconv_open", "__gconv_open"),
    }
)
"""Functions that find code by name in the process or on disk, and lists of libraries by which it is done by hand."""

LOADING_SYMBOL = re.compile(r"libcudart_static_[0-9a-f]+|__cudart\d+|_ZN3tvm3ffi6Module12LoadFromFile\w*")
"""Symbols inside the CUDA runtime's static library, through which its own loading of the driver could be reached, and
the function by which TVM-FFI loads a library."""

PROCESS_CREATION = frozenset(
    {
        *("system", "popen", "fork", "vfork", "_Fork", "clone", "__clone", "syscall", "wordexp"),
        *("execl", "execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fexecve"),
        *("posix_spawn", "posix_spawnp", "pidfd_open", "pidfd_getfd"),
        # Other names of the same in glibc, and what forks inside.
        *("__fork", "__vfork", "__libc_fork", "__libc_system", "_IO_popen", "_IO_proc_open", "forkpty", "daemon"),
    }
)
"""Functions that start another program, or reach the kernel past the C library."""

CODE_LOADING = re.compile(
    r"cuModuleLoad\w*|cuLibraryLoad\w*|cudaLibraryLoad\w*|cuLink(?:Create|Add|Complete)\w*"
    r"|cu(?:da)?GetExportTable|nvrtc[A-Z]\w*|nvJitLink\w+|nvPTXCompiler\w+|nvFatbin\w+"
)
"""Functions that load device code which the harness did not compile, or that reach them."""

REGISTRATION = re.compile(r"__cudaRegister\w+|__cudaInitModule|__fatBinC\w*|__fatDeviceText")
"""What nvcc's own code uses to register the embedded device code; no source needs it."""

HOST_CALLBACKS = frozenset({"TVMFFIFunctionGetGlobal", "TVMFFIEnvModLookupFromImports"})
"""Functions that call into the host process through TVM-FFI's registry."""

OBSERVATION = re.compile(
    r"cupti[A-Z]\w*|NVPW_\w+|nvml[A-Z]\w*|cuCtxCreate\w*|cuDevicePrimaryCtxReset\w*|cuCheckpoint[A-Z]\w*"
)
"""Functions that reach what the harness watches the process with, or get out of its sight: CUPTI, which records what
the device did and whose library is loaded there, NVML, and CUDA contexts of one's own, for whose work no call waits.
Every function that ``cuda.h`` declares can be linked to (``toolchain.stub``)."""

ENTRY_POINT_LOOKUP = frozenset(
    {
        *("cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion"),
        *("cudaGetDriverEntryPoint_ptsz", "cudaGetDriverEntryPointByVersion_ptsz"),
        *("cuGetProcAddress", "cuGetProcAddress_v2"),
    }
)
"""Functions that give a driver function by name."""

ALLOWED_ENTRY_POINT = re.compile(r"cuTensorMap(?:EncodeTiled|EncodeIm2col|EncodeIm2colWide|ReplaceAddress)")
"""Driver functions that may be looked up by name: encoding a tensor map is host arithmetic that TMA needs."""

DEVICE_CODE_SECTION = re.compile(r"\.nv_fatbin|\.nvFatBinSegment|__nv_relfatbin")
"""Sections in which nvcc embeds device code."""

ALLOWED_NEEDED = re.compile(
    r"libcuda\.so\.1|libtvm_ffi\.so|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6"
    r"|libdl\.so\.2|librt\.so\.1|libpthread\.so\.0|ld-linux-[\w-]+\.so\.\d"
)
"""Libraries that the link step can make a shared object need."""


def library_of_header(path: str) -> str | None:
    """Title of the library whose header ``path`` is; ``path`` is relative to its search folder, or as spelled."""
    return next((title for pattern, title in _HEADERS if pattern.fullmatch(path)), None)


def library_of_function(name: str) -> str | None:
    """Title of the library that ``name`` is a C function (or mangled C++ function) of."""
    return next((title for pattern, title in _FUNCTIONS if pattern.match(name)), None)


def has_functions(library: str) -> bool:
    """Whether a library, by its title, is one of functions to link or load, not only of templates."""
    return any(entry.title == library and entry.functions for entry in LIBRARIES)


def library_of_kernel(mangled: str) -> str | None:
    """Title of the library that a kernel belongs to, from its mangled name."""
    match = _KERNEL_NAMESPACE.match(mangled)
    return None if match is None else _NAMESPACES[match[1]]
