"""The reference functions against torch's autograd and the textbook formulas, in double precision where it can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.cases import load_suite
from tests.unit.cases import checkout

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

CASES = {case.name: case for case in load_suite(checkout.ROOT, "primary").cases("h100")}
CAUSAL = pytest.mark.parametrize("causal", [False, True])


def reference(name: str, **overrides: int) -> Callable[..., Any]:
    """The definition's ``run``, with its block size replaced so that small inputs take several blocks."""
    namespace: dict[str, Any] = {}
    exec(compile(CASES[name].definition.reference, name, "exec"), namespace)
    assert set(overrides) <= set(namespace)
    namespace.update(overrides)
    run: Callable[..., Any] = namespace["run"]
    return run


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16).to(dtype)


def attention(q, k, v, causal: bool):
    """Textbook attention: the whole score matrix at once, in the dtype of its inputs."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        size = q.shape[-2]
        scores = scores.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), -math.inf)
    probabilities = torch.softmax(scores, dim=-1)
    return probabilities @ v, torch.log(torch.exp(scores).sum(dim=-1))


def forward_inputs(seed: int, batch: int = 2, heads: int = 3, length: int = 70, dim: int = 128):
    return [normal(batch, heads, length, dim, seed=seed + index) for index in range(3)]


def test_gemm():
    run = reference("gemm_n7168_k5120")
    a, b = normal(2050, 96, seed=1), normal(40, 96, seed=2)
    torch.testing.assert_close(run(a, b), (a.double() @ b.double().T).float(), rtol=1e-5, atol=1e-5)


def test_gemm_rounds_once():
    run = reference("gemm_n7168_k5120")
    a, b = normal(64, 512, seed=1, dtype=torch.bfloat16), normal(32, 512, seed=2, dtype=torch.bfloat16)
    c = run(a, b)
    assert c.dtype == torch.bfloat16
    exact = a.double() @ b.double().T
    assert ((c.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-4).all()


@CAUSAL
@pytest.mark.parametrize("rows", [1024, 70, 32, 1])
def test_forward(causal, rows):
    name = "mha_with_lse_d128_causal" if causal else "mha_with_lse_d128"
    q, k, v = forward_inputs(seed=10)
    out, lse = reference(name, ROWS=rows)(q, k, v)
    exact_out, exact_lse = attention(q.double(), k.double(), v.double(), causal)
    torch.testing.assert_close(out, exact_out.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, exact_lse.float(), rtol=1e-6, atol=1e-5)


@CAUSAL
@pytest.mark.parametrize("rows", [1024, 70, 32, 1])
def test_backward(causal, rows):
    name = "mha_bwd_d128_causal" if causal else "mha_bwd_d128"
    q, k, v = (tensor.double().requires_grad_() for tensor in forward_inputs(seed=20))
    do = normal(*q.shape, seed=30)
    out, lse = attention(q, k, v, causal)
    out.backward(do.double())
    floats = [tensor.detach().float() for tensor in (q, k, v, out)]
    gradients = reference(name, ROWS=rows)(*floats, do, lse.detach().float())
    for found, exact in zip(gradients, (q.grad, k.grad, v.grad), strict=True):
        torch.testing.assert_close(found, exact.float(), rtol=1e-4, atol=1e-5)


@CAUSAL
def test_backward_agrees_with_torchs_own_attention(causal):
    name = "mha_bwd_d128_causal" if causal else "mha_bwd_d128"
    q, k, v = (tensor.double().requires_grad_() for tensor in forward_inputs(seed=40, batch=1, heads=2, length=33))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    do = normal(*q.shape, seed=50)
    out.backward(do.double())
    _, lse = attention(q, k, v, causal)
    floats = [tensor.detach().float() for tensor in (q, k, v, out)]
    gradients = reference(name)(*floats, do, lse.detach().float())
    for found, exact in zip(gradients, (q.grad, k.grad, v.grad), strict=True):
        torch.testing.assert_close(found, exact.float(), rtol=1e-4, atol=1e-5)


def test_backward_uses_the_lse_it_is_given_and_takes_it_as_natural():
    q, k, v = forward_inputs(seed=60, batch=1, heads=1, length=16)
    out, lse = attention(q, k, v, causal=False)
    run = reference("mha_bwd_d128")
    _, _, right = run(q, k, v, out, torch.ones_like(out), lse)
    _, _, halved = run(q, k, v, out, torch.ones_like(out), lse + math.log(2))
    torch.testing.assert_close(halved * 2, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(CASES))
def test_outputs_have_the_shapes_and_dtypes_of_the_definition(name):
    case = CASES[name].shrunk()
    case = case.model_copy(
        update={
            "workload": case.workload.model_copy(
                update={"axes": {axis: min(size, 64) for axis, size in case.workload.axes.items()}}
            )
        }
    )
    dtypes = case.dtypes()
    inputs = [
        normal(*shape, seed=index, dtype=getattr(torch, dtypes[tensor]))
        for index, (tensor, shape) in enumerate(case.input_shapes().items())
        if shape is not None
    ]
    copies = [tensor.clone() for tensor in inputs]
    found = reference(name)(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    assert len(outputs) == len(case.output_shapes())
    for output, (tensor, shape) in zip(outputs, case.output_shapes().items(), strict=True):
        assert tuple(output.shape) == shape
        assert str(output.dtype) == f"torch.{dtypes[tensor]}"
        assert output.is_contiguous()
        assert not torch.isnan(output).any() or "bwd" in name
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(inputs, copies, strict=True))


@CAUSAL
def test_no_score_matrix_over_all_heads_is_ever_made(causal):
    """The largest tensor of a call stays at one head's block of scores."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    batch, heads, length, dim, rows = 2, 4, 256, 16, 64
    q, k, v = forward_inputs(seed=70, batch=batch, heads=heads, length=length, dim=dim)
    out, lse = attention(q, k, v, causal)
    suffix = "_causal" if causal else ""
    bound = max(rows * length, q.numel())
    for name, inputs in (("mha_with_lse_d128", (q, k, v)), ("mha_bwd_d128", (q, k, v, out, out, lse))):
        largest = 0
        with Watch():
            reference(name + suffix, ROWS=rows)(*inputs)
        assert 0 < largest <= bound < batch * heads * length * length
