"""Outputs of kernels that compute nothing: each must fail every case under every family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]


def zeros(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    return reference.new_zeros(reference.shape)


def not_a_number(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    """What the harness poisons outputs with: nothing was written."""
    return reference.new_full(reference.shape, float("nan"))


def infinite(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    return reference.new_full(reference.shape, float("inf"))


def constant(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    """The best constant there is: the mean of the right answer."""
    finite = reference.double().nan_to_num(neginf=0.0)
    return finite.mean().to(reference.dtype).expand(reference.shape).contiguous()


def copy_of_an_input(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    """The largest floating-point input, repeated or cut to the output's size."""
    import torch

    source = max((tensor for tensor in inputs.values() if tensor.is_floating_point()), key=torch.numel)
    flat = source.reshape(-1)[: reference.numel()]
    repeats = -(-reference.numel() // flat.numel())
    return flat.repeat(repeats)[: reference.numel()].to(reference.dtype).reshape(reference.shape).contiguous()


def stale_output(reference: torch.Tensor, inputs: Tensors, stale: torch.Tensor) -> torch.Tensor:
    """The right answer to other inputs of the same family."""
    return stale.clone()


NULLS: dict[str, Callable[[torch.Tensor, Tensors, torch.Tensor], torch.Tensor]] = {
    "zeros": zeros,
    "nan": not_a_number,
    "infinite": infinite,
    "constant": constant,
    "copy": copy_of_an_input,
    "stale": stale_output,
}
