"""The frontier libraries: one function per call, writing nothing but its own results (PROTOCOL 3).

A binding takes the workload's tensors and scalars by name and returns closures: the library call, which is what is
timed; and what is not: a publication of its results into the output tensors and, where the library plans, its planning.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import flashinfer_calls
from ptxbench.profiler.bound_call import Arguments, Bound

if TYPE_CHECKING:
    import torch

    from ptxbench.profiler.bound_call import Tensors


def _matmul(arguments: Arguments) -> Bound:
    import torch

    tensors = arguments.tensors
    a, b, c = tensors["A"], tensors["B"].t(), tensors["C"]

    def call() -> None:
        torch.matmul(a, b, out=c)

    return Bound(call, lambda: None)


def attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """cuDNN fused attention. [B,H,S,D] bf16 -> O [B,H,S,D] bf16, LSE [B,H,S,1] fp32 natural log, (seed, offset)."""
    import torch

    result = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    return result[0], result[1], (result[6], result[7])


def _attention_forward(arguments: Arguments) -> Bound:
    tensors, causal, _ = arguments
    results: list[torch.Tensor] = []

    def call() -> None:
        output, lse, _ = attention_forward(tensors["Q"], tensors["K"], tensors["V"], causal=causal)
        results[:] = [output, lse]

    def publish() -> None:
        tensors["O"].copy_(results[0])
        tensors["LSE"].copy_(results[1].squeeze(-1))

    return Bound(call, publish)


def _attention_backward(arguments: Arguments) -> Bound:
    import torch

    tensors, causal, _ = arguments
    q, k, v, o, do = (tensors[name] for name in ("Q", "K", "V", "O", "dO"))
    lse = tensors["L"].unsqueeze(-1)
    # The op wants the forward's random state; without dropout its values are never read.
    tiny = q[:1, :1, :128].contiguous()
    philox = attention_forward(tiny, tiny, tiny, causal=causal)[2]
    results: list[torch.Tensor] = []

    def call() -> None:
        results[:] = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            do, q, k, v, o, lse, *philox, None, None, None, q.shape[2], k.shape[2], 0.0, causal
        )

    def publish() -> None:
        for name, result in zip(("dQ", "dK", "dV"), results, strict=True):
            tensors[name].copy_(result)

    return Bound(call, publish)


BINDINGS: dict[str, Callable[[Arguments], Bound]] = {
    "torch.matmul": _matmul,
    "cudnn_attention_forward": _attention_forward,
    "cudnn_attention_backward": _attention_backward,
    **flashinfer_calls.BINDINGS,
}
PLANNED = frozenset(flashinfer_calls.BINDINGS)
"""Calls that must be planned."""
PACKAGES = {
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12"),
    "flashinfer": ("flashinfer-python",),
}
"""Library -> packages that may hold it, where they are not called as it is."""


def bind(
    call: str, tensors: Tensors, *, causal: bool, scalars: Mapping[str, bool | int | float] | None = None
) -> Bound:
    """Bind a suite's baseline.

    Raises InfrastructureError("baseline_unavailable") for a call that is not known, or whose library is not installed:
    another one never takes its place.
    """
    arguments = Arguments(tensors, causal, scalars or {})
    if call not in BINDINGS:
        raise InfrastructureError(
            "baseline_unavailable", f"expected a baseline call out of {sorted(BINDINGS)}, found {call!r} in the suite"
        )
    try:
        return BINDINGS[call](arguments)
    except ImportError as error:
        library = "flashinfer" if call in PLANNED else "torch"
        package = PACKAGES.get(library, (library,))[0]
        raise InfrastructureError(
            "baseline_unavailable",
            f"expected the library {library}, whose {call} is the baseline, found that it does not import: {error}; "
            f"install {package} (no other library takes its place)",
        ) from error


def library_version(library: str) -> str:
    """Version of a baseline library as it is loaded now."""
    import torch

    if library == "cudnn":
        number = torch.backends.cudnn.version()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "missing"
    for package in PACKAGES.get(library, (library,)):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"of CUDA {torch.version.cuda}" if library == "cublas" else "missing"
