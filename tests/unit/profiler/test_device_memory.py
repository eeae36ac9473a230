"""What it looks like when the device has no memory left, and whose fault that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.profiler.device_memory import ran_out, taken_by_candidate
from ptxbench.profiler.replies import WorkerError
from ptxbench.records import RunStatus

NO_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    "cudaErrorMemoryAllocation (2)",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
)
ANOTHER = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize("words", NO_MEMORY)
def test_it_is_told_in_the_words_of_all_that_allocate(words: str) -> None:
    assert ran_out(RuntimeError(words))
    assert not ran_out(ValueError(words)), "what a candidate's text says is nothing that a library raised"
    with pytest.raises(WorkerError, match="too little device memory was left") as caught, taken_by_candidate():
        raise RuntimeError(words)
    assert caught.value.status is RunStatus.RUNTIME_ERROR


def test_another_error_stays_what_it_is() -> None:
    assert not ran_out(RuntimeError(ANOTHER))
    with pytest.raises(RuntimeError, match="illegal memory access"), taken_by_candidate():
        raise RuntimeError(ANOTHER)


@pytest.mark.parametrize(
    ("words", "kind"), [*((words, "out_of_device_memory") for words in NO_MEMORY), (ANOTHER, "oracle_died")]
)
def test_the_oracle_tells_it_from_its_own_end(words: str, kind: str) -> None:
    """A fault that means the oracle's end has it started anew, with every workload's state lost."""
    pytest.importorskip("torch")
    from ptxbench.profiler.oracle import answer

    def do_evaluate(_: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError(words)

    oracle: Any = SimpleNamespace(do_evaluate=do_evaluate)
    assert answer(oracle, {"op": "evaluate"})["fault"]["kind"] == kind
