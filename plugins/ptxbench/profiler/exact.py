"""Oracles of higher precision: what the libraries' calls compute, in float64 and rounded nowhere.

The truth of every verdict is the definition's reference, which computes in fp32 and rounds its outputs once. These
oracles say how good that truth is, and how good the libraries are, and know the operations by the libraries' calls.
They go head by head and block by block, so that float64 fits wherever the workload does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ptxbench.profiler.device_memory import ran_out
from ptxbench.records import ExactErrors

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

    Tensors = Mapping[str, torch.Tensor]

PRECISION: Literal["float64"] = "float64"
ROWS = 1024
"""Queries of a block, and rows of a block of a product."""
SEQUENCE_ROWS = 128
"""Queries of a block where all heads of a sequence go together."""
_CHUNK = 1 << 24
_LOWEST = -1e300
"""Stands for the LSE of a row that sees no key, whose exponentials are all zero."""


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A B^T. [M,K], [N,K] -> [M,N] float64."""
    import torch

    c = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float64, device=a.device)
    right = b.double().T
    for start in range(0, a.shape[0], ROWS):
        c[start : start + ROWS] = a[start : start + ROWS].double() @ right
    return c


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention. [B,H,S,D] -> O [B,H,S,D] and natural LSE [B,H,S], float64."""
    import torch

    output = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    for head in _heads(q):
        keys, values = k[head].double(), v[head].double()
        for rows, scores in _blocks(q[head], keys, causal=causal):
            row = torch.logsumexp(scores, dim=-1)
            output[head][rows] = torch.exp(scores - row.unsqueeze(-1)) @ values[: scores.shape[-1]]
            lse[head][rows] = row
    return output, lse


def attention_gradients(tensors: Tensors, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of softmax attention from O and natural LSE L of a forward pass. -> dQ, dK, dV, float64."""
    import torch

    q, k, v, o, do = (tensors[name] for name in ("Q", "K", "V", "O", "dO"))
    scale = 1.0 / math.sqrt(q.shape[-1])
    dq, dk, dv = (torch.zeros(q.shape, dtype=torch.float64, device=q.device) for _ in range(3))
    for head in _heads(q):
        keys, values = k[head].double(), v[head].double()
        for rows, scores in _blocks(q[head], keys, causal=causal):
            seen, upstream = scores.shape[-1], do[head][rows].double()
            p = torch.exp(scores - tensors["L"][head][rows].double().unsqueeze(-1))
            delta = (upstream * o[head][rows].double()).sum(-1, keepdim=True)
            ds = p * (upstream @ values[:seen].T - delta) * scale
            dv[head][:seen] += p.T @ upstream
            dq[head][rows] = ds @ keys[:seen]
            dk[head][:seen] += ds.T @ q[head][rows].double()
    return dq, dk, dv


def _heads(q: torch.Tensor) -> list[tuple[int, int]]:
    return [(batch, head) for batch in range(q.shape[0]) for head in range(q.shape[1])]


def _blocks(q: torch.Tensor, keys: torch.Tensor, *, causal: bool) -> Iterator[tuple[slice, torch.Tensor]]:
    """Scaled scores of one head, block of queries by block of queries, over the keys that any of them sees."""
    import torch

    for start in range(0, q.shape[0], ROWS):
        stop = min(start + ROWS, q.shape[0])
        seen = stop if causal else keys.shape[0]
        scores = q[start:stop].double() @ keys[:seen].T / math.sqrt(q.shape[-1])
        if causal:
            query = torch.arange(start, stop, device=q.device).unsqueeze(1)
            scores.masked_fill_(torch.arange(seen, device=q.device) > query, -math.inf)
        yield slice(start, stop), scores


def sequences(tensors: Tensors, sm_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Grouped-query attention of ragged or paged sequences, causal where they have several queries.

    -> output [queries, heads, D] and base-2 LSE [queries, heads], float64. A row that sees no key is 0 and -inf.
    """
    import torch

    q, offsets = tensors["q"], tensors["kv_indptr"].tolist()
    queries = tensors["qo_indptr"].tolist() if "qo_indptr" in tensors else list(range(q.shape[0] + 1))
    output = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float64, device=q.device)
    for (first, last), (begin, end) in zip(pairwise(queries), pairwise(offsets), strict=True):
        keys, values = (_of_sequence(tensors, name, begin, end) for name in ("k", "v"))
        for start in range(first, last, SEQUENCE_ROWS):
            stop = min(start + SEQUENCE_ROWS, last)
            # The queries are the last ones of the keys.
            before = end - begin - (last - start)
            output[start:stop], lse[start:stop] = _attend(q[start:stop], keys, values, before, sm_scale)
    return output, lse / math.log(2.0)


def _of_sequence(tensors: Tensors, name: str, begin: int, end: int) -> torch.Tensor:
    """Keys or values of one sequence: [heads, length, D] float64."""
    if name in tensors:
        found = tensors[name][begin:end]
    else:
        found = tensors[f"{name}_cache"][tensors["kv_indices"][begin:end].long()].flatten(0, 1)
    return found.double().transpose(0, 1)


def _attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, before: int, sm_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the output and their natural LSE; query i sees the keys 0 to before + i."""
    import torch

    rows, heads, _ = q.shape
    grouped = q.double().unflatten(1, (keys.shape[0], -1)).permute(1, 2, 0, 3)
    scores = grouped @ keys.unsqueeze(1).transpose(-1, -2) * sm_scale
    last = torch.arange(rows, device=q.device).unsqueeze(1) + before
    scores.masked_fill_(torch.arange(keys.shape[1], device=q.device) > last, -math.inf)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    output = torch.exp(scores - lse.clamp_min(_LOWEST)) @ values.unsqueeze(1)
    return output.permute(2, 0, 1, 3).reshape(q.shape), lse.permute(2, 0, 1, 3).reshape(rows, heads)


def _product(case: Case, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return (product(tensors["A"], tensors["B"]),)


def _attention(case: Case, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return attention(tensors["Q"], tensors["K"], tensors["V"], causal=case.causal)


def _gradients(case: Case, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return attention_gradients(tensors, causal=case.causal)


def _sequences(case: Case, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return sequences(tensors, float(case.scalars()["sm_scale"]))


ORACLES: dict[str, Callable[[Case, Tensors], tuple[torch.Tensor, ...]]] = {
    "torch.matmul": _product,
    "cudnn_attention_forward": _attention,
    "cudnn_attention_backward": _gradients,
    "BatchPrefillWithRaggedKVCacheWrapper": _sequences,
    "BatchPrefillWithPagedKVCacheWrapper": _sequences,
    "BatchDecodeWithPagedKVCacheWrapper": _sequences,
}
"""By the baseline's call, whose binding takes the same tensors."""


def exact_outputs(case: Case, tensors: Tensors) -> dict[str, torch.Tensor] | None:
    """The case's outputs in float64, by name; None where no oracle knows the operation."""
    oracle = ORACLES.get(case.baseline.call)
    return None if oracle is None else dict(zip(case.output_shapes(), oracle(case, tensors), strict=True))


def scale_relative(output: torch.Tensor, truth: torch.Tensor) -> float:
    """RMS of the error over RMS of the truth, in float64, over elements whose truth is finite.

    Infinite where the output is not finite there.
    """
    import torch

    sums = torch.zeros(2, dtype=torch.float64, device=truth.device)
    flat_output, flat_truth = output.reshape(-1), truth.reshape(-1)
    for start in range(0, flat_truth.numel(), _CHUNK):
        true = flat_truth[start : start + _CHUNK]
        finite = true.isfinite()
        error = (flat_output[start : start + _CHUNK].double() - true).masked_fill(~finite, 0.0)
        sums += torch.stack([error.square().sum(), true.masked_fill(~finite, 0.0).square().sum()])
    squared_error, squared_truth = sums.tolist()
    if not math.isfinite(squared_error):
        return math.inf
    return math.sqrt(squared_error / squared_truth) if squared_truth > 0 else float(squared_error > 0)


def exact_errors(case: Case, inputs: Tensors, library: Tensors, reference: Tensors) -> ExactErrors | None:
    """Scale-relative errors of the library's and the reference's outputs.

    None where no oracle knows the operation, or float64 does not fit.
    """
    try:
        truth = exact_outputs(case, inputs)
    except RuntimeError as error:
        if not ran_out(error):
            raise
        return None
    if truth is None:
        return None
    return ExactErrors(
        precision=PRECISION,
        library={name: scale_relative(library[name], exact) for name, exact in truth.items()},
        reference={name: scale_relative(reference[name], exact) for name, exact in truth.items()},
    )
