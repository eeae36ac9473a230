"""What it looks like when the device has no memory left: a candidate may have taken it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptxbench.profiler.replies import WorkerError
from ptxbench.records import RunStatus

_WORDS = ("out of memory", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")
"""Of torch, of ``cuda.bindings``, of the driver and of cuBLAS through torch. torch raises ``OutOfMemoryError`` for its
own allocations alone: a kernel whose code is loaded at its first use, or that needs a larger stack, fails with another
error."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that device memory ran out."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


@contextmanager
def taken_by_candidate() -> Iterator[None]:
    """Where device memory runs out meanwhile, the candidate took it: there was enough before. Raises WorkerError then.

    As a fault of ours its turn would be excluded, and a wrong kernel had better fill the device.
    """
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        words = f"too little device memory was left while the candidate ran: {str(error)[:200]}"
        raise WorkerError(RunStatus.RUNTIME_ERROR, words) from error
