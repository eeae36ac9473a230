"""Inputs that never repeat.

Each workload state owns, per input tensor, a pool of random elements a little larger than the tensor. A *draw* picks
one window per tensor; windows start at secret offsets, so every timed call of a candidate reads other data at the same
addresses in every position, for the price of one copy, and no two timed calls of a sandbox see the same inputs. A
window of independent normal samples is one; two windows overlap, but what one holds stands elsewhere in the other.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.profiler.arena import ELEMENT_BYTES, TensorSpec, element_count

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

POOL_SLACK = 1 << 22
"""Elements that a pool holds beyond its tensor."""
OFFSET_STEP = 64
"""Window offsets are multiples of 64 elements: 128 bytes in bf16, so that copies stay aligned."""

DERIVED = {"normal": (), "attention_backward": ("O", "L")}
"""Inputs that a recipe computes from the drawn ones instead of drawing them."""


class Draw(NamedTuple):
    """One choice of windows: offset in elements per drawn input, in definition order."""

    offsets: tuple[int, ...]


def specs_of(case: Case) -> tuple[TensorSpec, ...]:
    """All tensor arguments in call order: inputs, then outputs. Inputs of ``shape: null`` are scalars, not tensors."""
    dtypes = case.dtypes()
    inputs = [TensorSpec(n, s, dtypes[n], False) for n, s in case.input_shapes().items() if s is not None]
    outputs = [TensorSpec(n, s, dtypes[n], True) for n, s in case.output_shapes().items()]
    return (*inputs, *outputs)


class InputSource:
    """Pools of one case on the device, and the draws from them."""

    def __init__(self, case: Case, seed: int) -> None:
        import torch

        self._case = case
        self._secret = random.SystemRandom()
        derived = DERIVED[case.input_recipe]
        self._specs = [spec for spec in specs_of(case) if not spec.output and spec.name not in derived]
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self._pools = {
            spec.name: torch.randn(
                element_count(spec.shape) + POOL_SLACK,
                dtype=getattr(torch, spec.dtype),
                device="cuda",
                generator=generator,
            )
            for spec in self._specs
        }
        self._bases = {name: pool.data_ptr() for name, pool in self._pools.items()}
        self._given: set[Draw] = set()
        self._bag: list[Draw] = []
        self._left: list[Draw] = []

    @property
    def nbytes(self) -> int:
        """Device memory of the pools."""
        return sum(pool.numel() * pool.element_size() for pool in self._pools.values())

    def _new(self) -> Draw:
        while True:
            draw = Draw(tuple(self._secret.randrange(0, POOL_SLACK, OFFSET_STEP) for _ in self._specs))
            if draw not in self._given:
                self._given.add(draw)
                return draw

    def keep(self) -> Draw:
        """Windows that ``draw()`` will never give: they are for checked calls."""
        return self._new()

    def draw(self) -> Draw:
        """Windows that were not drawn since ``forget()``."""
        if not self._left:
            self._bag.append(self._new())
            return self._bag[-1]
        return self._left.pop()

    def forget(self) -> None:
        """A new sandbox has seen nothing: the same windows again, in another order.

        Checked draws are the same for every candidate, so the others are too: that a candidate met some inputs in an
        earlier life tells it nothing of which calls are checked.
        """
        self._left = self._secret.sample(self._bag, len(self._bag))

    def addresses(self, draw: Draw) -> dict[str, int] | None:
        """Device addresses of a draw's inputs, or None where some are derived and must be computed first."""
        if DERIVED[self._case.input_recipe]:
            return None
        return {
            spec.name: self._bases[spec.name] + offset * ELEMENT_BYTES[spec.dtype]
            for spec, offset in zip(self._specs, draw.offsets, strict=True)
        }

    def tensors(self, draw: Draw) -> dict[str, torch.Tensor]:
        """The inputs of a draw by name; drawn ones are views of the pools, derived ones are computed."""
        views = {
            spec.name: self._pools[spec.name][offset : offset + element_count(spec.shape)].view(spec.shape)
            for spec, offset in zip(self._specs, draw.offsets, strict=True)
        }
        if self._case.input_recipe == "attention_backward":
            # PROTOCOL 2: O and L come from a real forward pass.
            from ptxbench.profiler.baselines import attention_forward

            output, lse, _ = attention_forward(views["Q"], views["K"], views["V"], causal=self._case.causal)
            views |= {"O": output.contiguous(), "L": lse.squeeze(-1).contiguous()}
        return views
