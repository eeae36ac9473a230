"""The oracle's own kernels: comparing an output in one pass, and counting changed guard words in one launch.

Tensor expressions would do both, at some twenty times the device time and four times the launches of a timed
iteration. Those of comparison.py are the specification; a GPU test holds the kernel to them. Compiled once per element
type with NVRTC, which comes with torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.errors import InfrastructureError

if TYPE_CHECKING:
    import torch

BLOCK = 256
BLOCKS_PER_SM = 8
_ELEMENTS = {"bfloat16": ("unsigned short", "from_bf16"), "float16": ("unsigned short", "from_f16")}
_ELEMENTS |= {"float32": ("unsigned int", "from_f32")}


def supported(dtype: str) -> bool:
    """Whether the kernel takes this element type."""
    return dtype in _ELEMENTS


def _check(result: tuple[Any, ...], what: str) -> Any:  # noqa: ANN401 - whatever the binding returns
    code, *values = result
    if int(code) != 0:
        raise InfrastructureError("oracle_died", f"the oracle's kernels: {what} failed: {code.name}")
    return values[0] if values else None


class Kernels(NamedTuple):
    """Functions of the compiled module, and a grid that fills the device."""

    compare: Any
    count_changed: Any
    grid: int


@cache
def compiled(dtype: str) -> Kernels:
    """The kernels for one element type on the current device. Raises InfrastructureError("oracle_died")."""
    import torch
    from cuda.bindings import driver, nvrtc

    element, load = _ELEMENTS[dtype]
    source = files("ptxbench.profiler").joinpath("oracle_kernels.cu").read_bytes()
    properties = torch.cuda.get_device_properties(0)
    options = [
        f"--gpu-architecture=sm_{properties.major}{properties.minor}".encode(),
        f"-DELEMENT={element}".encode(),
        f"-DLOAD={load}".encode(),
        b"--std=c++17",
    ]
    program = _check(nvrtc.nvrtcCreateProgram(source, b"oracle_kernels.cu", 0, [], []), "create")
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code) != 0:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program), "log size")
        nvrtc.nvrtcGetProgramLog(program, log)
        raise InfrastructureError("oracle_died", f"the oracle's kernels do not compile: {log.decode()[:500]}")
    image = b" " * _check(nvrtc.nvrtcGetCUBINSize(program), "cubin size")
    _check(nvrtc.nvrtcGetCUBIN(program, image), "cubin")
    module = _check(driver.cuModuleLoadData(image), "load")
    return Kernels(
        compare=_check(driver.cuModuleGetFunction(module, b"compare"), "lookup"),
        count_changed=_check(driver.cuModuleGetFunction(module, b"count_changed"), "lookup"),
        grid=properties.multi_processor_count * BLOCKS_PER_SM,
    )


def _launch(function: object, grid: int, arguments: Sequence[tuple[object, object]]) -> None:
    """Launch on torch's current stream; ``arguments`` are (value, ctypes type) pairs."""
    import torch
    from cuda.bindings import driver

    values, types = zip(*arguments, strict=True)
    stream = torch.cuda.current_stream().cuda_stream
    _check(driver.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, (values, types), 0), "launch")


def statistics(
    output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(mismatches, NaN, sum of squared error, sum of squared reference) fp64[4] and (max abs, max rel) fp32[2].

    Contiguous CUDA tensors of equal shape and supported dtype; asynchronous on torch's current stream.
    """
    import torch

    kernels = compiled(str(output.dtype).removeprefix("torch."))
    sums = torch.zeros(4, dtype=torch.float64, device=output.device)
    maxima = torch.zeros(2, dtype=torch.float32, device=output.device)
    _launch(
        kernels.compare,
        kernels.grid,
        [
            (output.data_ptr(), ctypes.c_void_p),
            (reference.data_ptr(), ctypes.c_void_p),
            (output.numel(), ctypes.c_uint64),
            (atol, ctypes.c_float),
            (rtol, ctypes.c_float),
            (sums.data_ptr(), ctypes.c_void_p),
            (maxima.data_ptr(), ctypes.c_void_p),
        ],
    )
    return sums, maxima


def count_changed(words: torch.Tensor, index: torch.Tensor, canary: torch.Tensor, changed: torch.Tensor) -> None:
    """Add to ``changed`` (int64 scalar) how many ``words[index]`` differ from ``canary`` (all int64); asynchronous."""
    _launch(
        compiled("bfloat16").count_changed,
        -(-index.numel() // BLOCK),
        [
            (words.data_ptr(), ctypes.c_void_p),
            (index.data_ptr(), ctypes.c_void_p),
            (canary.data_ptr(), ctypes.c_void_p),
            (index.numel(), ctypes.c_uint64),
            (changed.data_ptr(), ctypes.c_void_p),
        ],
    )
