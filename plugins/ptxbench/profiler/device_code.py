"""The oracle's own kernels: compiled once per element type with NVRTC, which comes with torch, and launched."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ptxbench.errors import InfrastructureError

POINTER, WORD, REAL = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float
"""Types of kernel parameters."""
BLOCK = 256


class ElementType(NamedTuple):
    """How the kernels see a torch dtype."""

    bits: str
    suffix: str


_ELEMENTS = {
    "bfloat16": ElementType("unsigned short", "bf16"),
    "float16": ElementType("unsigned short", "f16"),
    "float32": ElementType("unsigned int", "f32"),
}


def supported(dtype: str) -> bool:
    """Whether the kernels take this element type."""
    return dtype in _ELEMENTS


def _check(result: tuple[Any, ...], what: str) -> Any:  # noqa: ANN401 - whatever the binding returns
    code, *values = result
    if int(code) != 0:
        raise InfrastructureError("oracle_died", f"the oracle's kernels: {what} failed: {code.name}")
    return values[0] if values else None


@cache
def _module(source_name: str, dtype: str) -> Any:  # noqa: ANN401 - a driver handle
    """The loaded module of one source for one element type on the current device."""
    import torch
    from cuda.bindings import driver, nvrtc

    element = _ELEMENTS[dtype]
    major, minor = torch.cuda.get_device_capability(0)
    options = [
        f"--gpu-architecture=sm_{major}{minor}".encode(),
        f"-DELEMENT={element.bits}".encode(),
        f"-DLOAD=from_{element.suffix}".encode(),
        f"-DSTORE=to_{element.suffix}".encode(),
        f"-DBLOCK={BLOCK}".encode(),
        b"--std=c++17",
    ]
    source = files("ptxbench.profiler").joinpath(source_name).read_bytes()
    program = _check(nvrtc.nvrtcCreateProgram(source, source_name.encode(), 0, [], []), "create")
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code) != 0:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program), "log size")
        nvrtc.nvrtcGetProgramLog(program, log)
        raise InfrastructureError("oracle_died", f"{source_name} does not compile: {log.decode()[:500]}")
    image = b" " * _check(nvrtc.nvrtcGetCUBINSize(program), "cubin size")
    _check(nvrtc.nvrtcGetCUBIN(program, image), "cubin")
    return _check(driver.cuModuleLoadData(image), "load")


@cache
def function(source_name: str, dtype: str, name: str) -> Any:  # noqa: ANN401 - a driver handle
    """A kernel of one of the package's ``.cu`` files. Raises InfrastructureError("oracle_died")."""
    from cuda.bindings import driver

    return _check(driver.cuModuleGetFunction(_module(source_name, dtype), name.encode()), "lookup")


@cache
def processors() -> int:
    """Multiprocessors of the current device."""
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


class Launch:
    """A kernel bound to its arguments, so that launching it again costs microseconds.

    A call enqueues ``grid`` blocks of ``BLOCK`` threads on the default stream, which torch uses too.
    """

    def __init__(self, kernel: Any, grid: int, values: tuple[Any, ...], types: tuple[Any, ...]) -> None:  # noqa: ANN401
        from cuda.bindings import driver

        self._driver = driver
        self._kernel = kernel
        self._grid = grid
        self.arguments = [kind(value) for kind, value in zip(types, values, strict=True)]
        self._addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, self.arguments))
        self._parameters = ctypes.addressof(self._addresses)

    def __call__(self) -> None:
        """Enqueue it. Raises InfrastructureError("oracle_died")."""
        _check(
            self._driver.cuLaunchKernel(self._kernel, self._grid, 1, 1, BLOCK, 1, 1, 0, 0, self._parameters, 0),
            "launch",
        )
