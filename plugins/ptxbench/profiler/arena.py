"""The staging arena: the only device memory that a candidate shares with the oracle.

One allocation holds input copies and outputs, each between guard bands of random words. Outputs are poisoned with
0xFF bytes (NaN in every float type) before every checked and every timed call. Reference outputs and the keys of
the inputs are never in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.defences import active
from ptxbench.profiler.sandbox import check

if TYPE_CHECKING:
    import torch

GUARD_BYTES = 64 << 10
ALIGNMENT = 4096
WORD = 8


class TensorSpec(NamedTuple):
    """One tensor argument: what the definition says of it for this workload."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    output: bool


class Slot(NamedTuple):
    """Where a tensor lies in the arena. Bytes from the arena's start."""

    spec: TensorSpec
    offset: int
    nbytes: int


ELEMENT_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int32": 4,
    "int64": 8,
}


def element_count(shape: tuple[int, ...]) -> int:
    """Product of the extents; 1 for a scalar tensor."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def align(value: int, to: int) -> int:
    """Round up to a multiple."""
    return -(-value // to) * to


def layout(specs: tuple[TensorSpec, ...]) -> tuple[tuple[Slot, ...], int]:
    """Slots with at least ``GUARD_BYTES`` between, before and after them, and the arena's size in bytes."""
    slots: list[Slot] = []
    cursor = GUARD_BYTES
    for spec in specs:
        offset = align(cursor, ALIGNMENT)
        nbytes = element_count(spec.shape) * ELEMENT_BYTES[spec.dtype]
        slots.append(Slot(spec, offset, nbytes))
        cursor = offset + nbytes + GUARD_BYTES
    return tuple(slots), align(cursor, ALIGNMENT)


def guard_words(slots: tuple[Slot, ...], nbytes: int) -> list[range]:
    """Word ranges (8-byte words from the arena's start) of the guard bands: everything that is no tensor.

    A band starts at the first whole word after a tensor, so up to 7 bytes behind an odd-sized tensor are unwatched
    here; memcheck's exact-size buffers cover them.
    """
    begins = [0, *(align(slot.offset + slot.nbytes, WORD) for slot in slots)]
    ends = [*(slot.offset for slot in slots), nbytes]
    return [range(begin // WORD, end // WORD) for begin, end in zip(begins, ends, strict=True)]


class _CudaArray:
    """A raw allocation that torch can view."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def view_bytes(address: int, nbytes: int) -> torch.Tensor:
    """A uint8 tensor over device memory that torch does not own."""
    import torch

    return torch.as_tensor(_CudaArray(address, nbytes), device="cuda")


class Arena:
    """Staging memory of one workload. ``close()`` frees it; every sandbox that mapped it must be gone by then."""

    def __init__(self, specs: tuple[TensorSpec, ...]) -> None:
        """Allocate. Raises InfrastructureError("out_of_device_memory")."""
        import torch
        from cuda.bindings import runtime as cudart

        self.slots, self.nbytes = layout(specs)
        code, address = cudart.cudaMalloc(self.nbytes)
        if int(code) != 0:
            cudart.cudaGetLastError()
            free = torch.cuda.mem_get_info()[0]
            raise InfrastructureError(
                "out_of_device_memory",
                f"the workload's staging arena needs {self.nbytes / 2**30:.2f} GiB of device memory, "
                f"{free / 2**30:.2f} GiB are free; free the device or choose a smaller workload",
            )
        self._address = int(address)
        code, handle = cudart.cudaIpcGetMemHandle(self._address)
        if int(code) != 0:
            raise InfrastructureError("no_device", f"CUDA IPC is not available here: {code.name}")
        self.handle = bytes(handle.reserved).hex()
        self.bytes = view_bytes(self._address, self.nbytes)
        self.tensors = {
            slot.spec.name: self.bytes[slot.offset : slot.offset + slot.nbytes]
            .view(getattr(torch, slot.spec.dtype))
            .view(slot.spec.shape)
            for slot in self.slots
        }
        self._words = self.bytes.view(torch.int64)
        self._cudart = cudart
        self._outputs = [(self._address + slot.offset, slot.nbytes) for slot in self.slots if slot.spec.output]
        ranges = guard_words(self.slots, self.nbytes)
        index = torch.cat([torch.arange(band.start, band.stop) for band in ranges])
        self._guard_index = index.to("cuda")
        self._canary = torch.empty_like(self._guard_index)
        self.arm()

    def arm(self) -> None:
        """Write new random guard words."""
        self._canary.random_(-(2**62), 2**62)
        self._words[self._guard_index] = self._canary

    def guards_changed(self) -> torch.Tensor:
        """Whether any guard word is not what ``arm()`` wrote: bool, asynchronous.

        Nothing of ours writes there in between, so one look covers every call since ``arm()``.
        """
        changed = self._words[self._guard_index] != self._canary
        return (changed if active("guard_bands") else changed[:0]).any()

    def scrub(self) -> None:
        """Leave nothing of the last user for the process that maps the memory next. Waits for the device.

        A candidate's object is loaded with the memory mapped, before anything is staged. Its initializers would find
        the results of the last call, on a draw that comes back, or what a candidate before it wrote there.
        """
        self.bytes.zero_()
        self.arm()
        self.wait()

    def poison(self) -> None:
        """Fill every output with 0xFF bytes; asynchronous."""
        for address, nbytes in self._outputs:
            # Unpoisoned, an output would still hold the last call's.
            check(self._cudart.cudaMemsetAsync(address, 0xFF, nbytes, 0))

    def let_go_of_cache(self) -> None:
        """Make lines that a kernel had persist in L2 ordinary ones, which whatever is written next evicts.

        A device without such lines refuses, and then there are none.
        """
        self._cudart.cudaCtxResetPersistingL2Cache()

    def wait(self) -> None:
        """Wait for everything that was enqueued on the device."""
        check(self._cudart.cudaDeviceSynchronize())

    def write(self, sources: Mapping[str, torch.Tensor]) -> None:
        """Copy each named input; asynchronous."""
        for name, source in sources.items():
            self.tensors[name].copy_(source)

    def describe(self) -> list[dict[str, Any]]:
        """The tensors as a sandbox's job lists them."""
        return [
            {
                "name": slot.spec.name,
                "offset": slot.offset,
                "nbytes": slot.nbytes,
                "shape": list(slot.spec.shape),
                "dtype": slot.spec.dtype,
                "output": slot.spec.output,
            }
            for slot in self.slots
        ]

    def close(self) -> None:
        """Free the memory. Idempotent."""
        if self._address:
            self.tensors.clear()
            self._cudart.cudaFree(self._address)
            self._address = 0
