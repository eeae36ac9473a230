"""FlashInfer's wrappers: planned outside of the timed call, writing into the workload's own outputs (PROTOCOL 3).

A wrapper keeps the index tensors that it was planned with by reference, as long as they are on its device, so that new
page numbers behind the same addresses are read by the next call. FlashInfer compiles its kernels when they are first
planned and keeps them under ``FLASHINFER_WORKSPACE_BASE`` (default: the home folder), where later processes find them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxbench.profiler.bound_call import Arguments, Bound

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 384 << 20
"""Partial results of split sequences. Above FlashInfer's own example (128 MiB), so that one long sequence fits."""
LAYOUT = "NHD"
PAGE_SIZE = 1


def _workspace(q: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)


def _last_pages(indptr: torch.Tensor) -> torch.Tensor:
    """Keys in the last page of each sequence: pages of one key are full."""
    import torch

    return torch.full((indptr.numel() - 1,), PAGE_SIZE, dtype=torch.int32, device=indptr.device)


def _heads(q: torch.Tensor, k: torch.Tensor) -> tuple[int, int, int]:
    """Query heads, key-value heads, head dimension."""
    return q.shape[-2], k.shape[-2], q.shape[-1]


def _nothing_to_publish() -> None:
    """The call itself writes into the outputs."""


def _in_full(wrapper: Any, settings: str, call: str) -> str:  # noqa: ANN401 - a class of the library
    backend = getattr(wrapper, "_backend", "unknown")
    return (
        f"flashinfer.{type(wrapper).__name__}(workspace of {WORKSPACE_BYTES >> 20} MiB, {LAYOUT!r}{settings}), backend "
        f"{backend}: {call}, planned outside of the call"
    )


def _ragged_prefill(arguments: Arguments) -> Bound:
    import flashinfer

    tensors, causal, scalars = arguments
    q, k, v, output, lse = (tensors[name] for name in ("q", "k", "v", "output", "lse"))
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(_workspace(q), LAYOUT)

    def plan() -> str:
        wrapper.plan(
            tensors["qo_indptr"],
            tensors["kv_indptr"],
            *_heads(q, k),
            causal=causal,
            sm_scale=float(scalars["sm_scale"]),
            q_data_type=q.dtype,
            kv_data_type=k.dtype,
        )
        return _in_full(wrapper, "", f"run(q, k, v, out, lse, return_lse=True) with causal={causal}")

    def call() -> None:
        wrapper.run(q, k, v, out=output, lse=lse, return_lse=True)

    return Bound(call, _nothing_to_publish, plan)


def _paged_prefill(arguments: Arguments) -> Bound:
    import flashinfer

    tensors, causal, scalars = arguments
    q, k, v, output, lse = (tensors[name] for name in ("q", "k_cache", "v_cache", "output", "lse"))
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_workspace(q), LAYOUT)

    def plan() -> str:
        wrapper.plan(
            tensors["qo_indptr"],
            tensors["kv_indptr"],
            tensors["kv_indices"],
            _last_pages(tensors["kv_indptr"]),
            *_heads(q, k),
            PAGE_SIZE,
            causal=causal,
            sm_scale=float(scalars["sm_scale"]),
            q_data_type=q.dtype,
            kv_data_type=k.dtype,
        )
        return _in_full(wrapper, "", f"run(q, (k_cache, v_cache), out, lse, return_lse=True) with causal={causal}")

    def call() -> None:
        wrapper.run(q, (k, v), out=output, lse=lse, return_lse=True)

    return Bound(call, _nothing_to_publish, plan)


def _paged_decode(arguments: Arguments) -> Bound:
    import flashinfer

    tensors, scalars = arguments.tensors, arguments.scalars
    q, k, v, output, lse = (tensors[name] for name in ("q", "k_cache", "v_cache", "output", "lse"))
    # Tensor cores are FlashInfer's advice for large groups; this one is of three, below where serving systems use them.
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(_workspace(q), LAYOUT, use_tensor_cores=False)

    def plan() -> str:
        wrapper.plan(
            tensors["kv_indptr"],
            tensors["kv_indices"],
            _last_pages(tensors["kv_indptr"]),
            *_heads(q, k),
            PAGE_SIZE,
            sm_scale=float(scalars["sm_scale"]),
            q_data_type=q.dtype,
            kv_data_type=k.dtype,
        )
        return _in_full(wrapper, ", use_tensor_cores=False", "run(q, (k_cache, v_cache), out, lse, return_lse=True)")

    def call() -> None:
        wrapper.run(q, (k, v), out=output, lse=lse, return_lse=True)

    return Bound(call, _nothing_to_publish, plan)


BINDINGS: dict[str, Callable[[Arguments], Bound]] = {
    "BatchPrefillWithRaggedKVCacheWrapper": _ragged_prefill,
    "BatchPrefillWithPagedKVCacheWrapper": _paged_prefill,
    "BatchDecodeWithPagedKVCacheWrapper": _paged_decode,
}
