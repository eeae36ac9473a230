"""The comparison's statistics in one pass on the device: some twenty times the speed of tensor expressions.

The tensor expressions in comparison.py are the specification; a GPU test holds this kernel to them. Compiled once per
element type with NVRTC, which comes with torch.
"""

from __future__ import annotations

import ctypes
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
        raise InfrastructureError("oracle_died", f"the comparison kernel: {what} failed: {code.name}")
    return values[0] if values else None


class Comparison(NamedTuple):
    """The compiled kernel, and a grid that fills the device."""

    function: Any
    grid: int


@cache
def compiled(dtype: str) -> Comparison:
    """The kernel for one element type on the current device. Raises InfrastructureError("oracle_died")."""
    import torch
    from cuda.bindings import driver, nvrtc

    element, load = _ELEMENTS[dtype]
    source = files("ptxbench.profiler").joinpath("comparison_kernel.cu").read_bytes()
    properties = torch.cuda.get_device_properties(0)
    options = [
        f"--gpu-architecture=sm_{properties.major}{properties.minor}".encode(),
        f"-DELEMENT={element}".encode(),
        f"-DLOAD={load}".encode(),
        b"--std=c++17",
    ]
    program = _check(nvrtc.nvrtcCreateProgram(source, b"comparison_kernel.cu", 0, [], []), "create")
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code) != 0:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program), "log size")
        nvrtc.nvrtcGetProgramLog(program, log)
        raise InfrastructureError("oracle_died", f"the comparison kernel does not compile: {log.decode()[:500]}")
    image = b" " * _check(nvrtc.nvrtcGetCUBINSize(program), "cubin size")
    _check(nvrtc.nvrtcGetCUBIN(program, image), "cubin")
    module = _check(driver.cuModuleLoadData(image), "load")
    function = _check(driver.cuModuleGetFunction(module, b"compare"), "lookup")
    return Comparison(function, properties.multi_processor_count * BLOCKS_PER_SM)


def statistics(
    output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(mismatches, NaN, sum of squared error, sum of squared reference) fp64[4] and (max abs, max rel) fp32[2].

    Contiguous CUDA tensors of equal shape and supported dtype; asynchronous on torch's current stream.
    """
    import torch
    from cuda.bindings import driver

    function, grid = compiled(str(output.dtype).removeprefix("torch."))
    sums = torch.zeros(4, dtype=torch.float64, device=output.device)
    maxima = torch.zeros(2, dtype=torch.float32, device=output.device)
    pointer, word, real = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float
    values = (output.data_ptr(), reference.data_ptr(), output.numel(), atol, rtol, sums.data_ptr(), maxima.data_ptr())
    types = (pointer, pointer, word, real, real, pointer, pointer)
    stream = torch.cuda.current_stream().cuda_stream
    _check(driver.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, (values, types), 0), "launch")
    return sums, maxima
