"""What every case computes, in NumPy float64, as a textbook writes it: whole matrices, no blocks, no tricks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.cases import Case

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]


def softmax(scores: Array) -> tuple[Array, Array]:
    """Probabilities and the natural logarithm of the sum of exponentials, over the last axis."""
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, (largest + np.log(total))[..., 0]


def scores_of(q: Array, k: Array, *, causal: bool) -> Array:
    """Scaled scores, -inf where masked: the queries are the last ones of the keys."""
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = np.indices(scores.shape[-2:])
        scores = np.where(columns > rows + scores.shape[-1] - scores.shape[-2], -np.inf, scores)
    return scores


def gemm(case: Case, x: Arrays) -> tuple[Array, ...]:
    return (x["A"] @ x["B"].T,)


def forward(case: Case, x: Arrays) -> tuple[Array, ...]:
    p, lse = softmax(scores_of(x["Q"], x["K"], causal=case.causal))
    return p @ x["V"], lse


def backward(case: Case, x: Arrays) -> tuple[Array, ...]:
    """By the chain rule, with P from the given L and the row sums of dO * O from the given O."""
    p = np.exp(scores_of(x["Q"], x["K"], causal=case.causal) - x["L"][..., None])
    dp = x["dO"] @ np.swapaxes(x["V"], -1, -2)
    ds = p * (dp - (x["dO"] * x["O"]).sum(-1, keepdims=True)) / math.sqrt(x["Q"].shape[-1])
    return ds @ x["K"], np.swapaxes(ds, -1, -2) @ x["Q"], np.swapaxes(p, -1, -2) @ x["dO"]


def sequences(case: Case, x: Arrays) -> tuple[Array, ...]:
    """Head by head and sequence by sequence. LSE to base 2."""
    q = x["q"]
    output, lse = np.zeros(q.shape), np.full(q.shape[:2], -np.inf)
    starts = x["qo_indptr"] if "qo_indptr" in x else np.arange(len(q) + 1)
    for (q0, q1), (k0, k1) in zip(pairwise(starts), pairwise(x["kv_indptr"]), strict=True):
        for head in range(q.shape[1] if q1 > q0 else 0):
            k, v = (_keys(x, name, k0, k1)[:, head // (q.shape[1] // case.axes["num_kv_heads"])] for name in "kv")
            p, row = softmax(scores_of(q[q0:q1, head], k, causal=case.causal))
            output[q0:q1, head], lse[q0:q1, head] = p @ v, row / math.log(2)
    return output, lse


def _keys(x: Arrays, name: str, begin: int, end: int) -> Array:
    """Keys or values of one sequence: [length, heads, D]."""
    return x[name][begin:end] if name in x else x[f"{name}_cache"][x["kv_indices"][begin:end], 0]


OPERATIONS: dict[str, Callable[[Case, Arrays], tuple[Array, ...]]] = {
    "torch.matmul": gemm,
    "cudnn_attention_forward": forward,
    "cudnn_attention_backward": backward,
    "BatchPrefillWithRaggedKVCacheWrapper": sequences,
    "BatchPrefillWithPagedKVCacheWrapper": sequences,
    "BatchDecodeWithPagedKVCacheWrapper": sequences,
}


def outputs(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """The case's outputs in float64, by name. The softmax scale is 1/sqrt(D), as in every workload."""
    arrays = {
        name: tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()
        for name, tensor in tensors.items()
    }
    return dict(zip(case.output_shapes(), OPERATIONS[case.baseline.call](case, arrays), strict=True))
