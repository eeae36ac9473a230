"""The candidate, bound to its tensors in the oracle's staging arena (CUDA IPC)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .tensors import DeviceTensor


def check(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 - whatever CUDA returns
    """Value of a ``cuda.bindings.runtime`` call. Raises RuntimeError with the error's name."""
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"{getattr(code, 'name', code)} ({int(code)})")
    return values[0] if values else None


def open_arena(handle: str) -> int:
    """Map the oracle's staging arena. Returns its device address in this process."""
    from cuda.bindings import runtime as cudart

    memory = cudart.cudaIpcMemHandle_t()
    memory.reserved = bytes.fromhex(handle)
    return int(check(cudart.cudaIpcOpenMemHandle(memory, cudart.cudaIpcMemLazyEnablePeerAccess)))


class PrivateBuffers:
    """Exact-size allocations in place of the arena's, so that a sanitizer knows every tensor's true bounds."""

    def __init__(self, base: int, tensors: list[dict[str, Any]]) -> None:
        from cuda.bindings import runtime as cudart

        self._cudart = cudart
        self._base = base
        self._tensors = tensors
        self.addresses = [int(check(cudart.cudaMalloc(tensor["nbytes"]))) for tensor in tensors]
        # What another process writes to the arena is uninitialized to initcheck, which would find that in every element
        # that is copied from there. The oracle stages behind this.
        for tensor in tensors:
            check(cudart.cudaMemset(base + tensor["offset"], 0, tensor["nbytes"]))
        check(cudart.cudaDeviceSynchronize())

    def fill(self) -> None:
        """Copy what the oracle has staged, poisoned outputs included."""
        self._copy(outputs=False)

    def _copy(self, *, outputs: bool) -> None:
        kind = self._cudart.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        for tensor, private in zip(self._tensors, self.addresses, strict=True):
            staged = self._base + tensor["offset"]
            target, source = (staged, private) if outputs else (private, staged)
            if tensor["output"] or not outputs:
                check(self._cudart.cudaMemcpy(target, source, tensor["nbytes"], kind))
        check(self._cudart.cudaDeviceSynchronize())

    def publish(self) -> None:
        """Copy the outputs to the arena, where the oracle reads them."""
        self._copy(outputs=True)

    def finish(self) -> dict[str, Any]:
        """Free what is ours and destroy the context, so that a leak report has what the candidate keeps and no more.

        Returns the bytes in use in the device's memory pool. Raises RuntimeError.
        """
        cudart = self._cudart
        check(cudart.cudaDeviceSynchronize())
        pool_bytes = self._pool_bytes()
        for address in self.addresses:
            check(cudart.cudaFree(address))
        check(cudart.cudaIpcCloseMemHandle(self._base))
        check(cudart.cudaDeviceReset())
        return {"pool_bytes": pool_bytes}

    def _pool_bytes(self) -> int:
        used = self._cudart.cudaMemPoolAttr.cudaMemPoolAttrUsedMemCurrent
        value = check(self._cudart.cudaMemPoolGetAttribute(check(self._cudart.cudaDeviceGetMemPool(0)), used))
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"expected the bytes in use in the memory pool as a number, found {value!r}") from error


class Bound(NamedTuple):
    """A kernel bound to its tensors."""

    call: Callable[[], None]
    after: Callable[[], None] = lambda: None
    """What to do behind a call."""
    operations: Mapping[str, Callable[[], dict[str, Any]]] = MappingProxyType({})
    """What else it can be asked for, by name."""


def load_candidate(job: dict[str, Any], *, private: bool) -> Bound:
    """The candidate bound to its tensors."""
    import tvm_ffi

    base = open_arena(job["handle"])
    buffers = PrivateBuffers(base, job["tensors"]) if private else None
    function = tvm_ffi.load_module(job["so_path"])[job["symbol"]]
    # The views refer to the wrappers' shape arrays without owning them, so the call below keeps both alive.
    wrappers = [
        DeviceTensor(buffers.addresses[index] if buffers else base + tensor["offset"], tensor["shape"], tensor["dtype"])
        for index, tensor in enumerate(job["tensors"])
    ]
    arguments: list[Any] = [tvm_ffi.from_dlpack(wrapper) for wrapper in wrappers]
    for position, value in job["scalars"]:
        arguments.insert(position, value)

    def call(_: list[DeviceTensor] = wrappers) -> None:
        function(*arguments)

    def call_on_copies() -> None:
        assert buffers is not None
        buffers.fill()
        call()

    return Bound(call_on_copies, buffers.publish, {"finish": buffers.finish}) if buffers else Bound(call)


def load_null(handle: str | None = None) -> Bound:
    """No candidate: a call sets four bytes, so that its wall time is what the hand-over itself costs.

    They are the first ones of an arena, if there is one.
    """
    from cuda.bindings import runtime as cudart

    word = open_arena(handle) if handle else int(check(cudart.cudaMalloc(4)))

    def call() -> None:
        check(cudart.cudaMemsetAsync(word, 0, 4, 0))

    return Bound(call)
