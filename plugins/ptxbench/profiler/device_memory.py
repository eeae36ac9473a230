"""What it looks like when the device has no memory left: a candidate may have taken it."""

from __future__ import annotations

_WORDS = ("out of memory", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")
"""Of torch, of ``cuda.bindings``, of the driver and of cuBLAS through torch. torch raises ``OutOfMemoryError`` for its
own allocations alone: a kernel whose code is loaded at its first use, or that needs a larger stack, fails with another
error."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that device memory ran out."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
