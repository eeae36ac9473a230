"""A candidate's buffers under a sanitizer, over a stand-in for the CUDA runtime that only notes what is asked of it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ptxbench.profiler.sandbox.binding import PrivateBuffers

BASE = 1 << 20
TENSORS = [
    {"offset": 4096, "nbytes": 64, "output": False},
    {"offset": 8192, "nbytes": 32, "output": True},
]


class Runtime:
    """Allocates addresses in order and remembers every call but synchronizations."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDeviceToDevice="d2d")  # noqa: N815
    cudaMemPoolAttr = SimpleNamespace(cudaMemPoolAttrUsedMemCurrent="used")  # noqa: N815

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.pool_bytes = 0
        self.fails = ""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            if name != "cudaDeviceSynchronize":
                self.calls.append((name.removeprefix("cuda"), *arguments))
            values = {
                "cudaMalloc": (len(self.calls),),
                "cudaDeviceGetMemPool": ("pool",),
                "cudaMemPoolGetAttribute": (self.pool_bytes,),
            }
            return (1 if name == self.fails else 0, *values.get(name, ()))

        return call


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime()
    bindings = ModuleType("cuda.bindings")
    bindings.runtime = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    return found


def test_each_call_gets_what_is_staged_then_and_publishes_outputs_alone(runtime: Runtime) -> None:
    buffers = PrivateBuffers(BASE, TENSORS)
    assert buffers.addresses == [1, 2]
    # Marked as written by this process before the oracle stages, so that initcheck minds no copy of ours.
    assert runtime.calls[2:] == [("Memset", BASE + 4096, 0, 64), ("Memset", BASE + 8192, 0, 32)]
    runtime.calls.clear()
    buffers.fill()
    assert runtime.calls == [("Memcpy", 1, BASE + 4096, 64, "d2d"), ("Memcpy", 2, BASE + 8192, 32, "d2d")]
    runtime.calls.clear()
    buffers.publish()
    assert runtime.calls == [("Memcpy", BASE + 8192, 2, 32, "d2d")]


def test_what_is_ours_is_gone_before_the_context_is(runtime: Runtime) -> None:
    buffers = PrivateBuffers(BASE, TENSORS)
    runtime.calls.clear()
    runtime.pool_bytes = 4096
    assert buffers.finish() == {"pool_bytes": 4096}
    assert runtime.calls[-4:] == [("Free", 1), ("Free", 2), ("IpcCloseMemHandle", BASE), ("DeviceReset",)]


def test_an_end_that_fails_says_so(runtime: Runtime) -> None:
    buffers = PrivateBuffers(BASE, TENSORS)
    runtime.fails = "cudaFree"
    with pytest.raises(RuntimeError):
        buffers.finish()
