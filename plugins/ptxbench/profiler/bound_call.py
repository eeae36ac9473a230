"""A library call bound to the tensors of a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]


class Arguments(NamedTuple):
    """What a call is bound to."""

    tensors: Tensors
    causal: bool
    scalars: Mapping[str, bool | int | float]


class Bound(NamedTuple):
    """A library call bound to its tensors."""

    call: Callable[[], None]
    publish: Callable[[], None]
    plan: Callable[[], str] | None = None
    """Plan for the index inputs as they are now; returns the call in full. To be called before ``call`` and again
    whenever the offsets of sequences change; other page numbers need no new plan."""
