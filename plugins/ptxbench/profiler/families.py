"""Input families: other kinds of data than the official workload's, for calls that nobody times.

A kernel may be right for standard normal data alone: because means vanish, because no score is large, because all
sequences have the lengths that it was tuned on. A family changes the data in place, on the device, as a function of the
key that they were made from. The official family, ``normal``, is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ptxbench.profiler.exact import ORACLES
from ptxbench.profiler.given_inputs import given_names
from ptxbench.records import OFFICIAL_FAMILY

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

Family = Literal["normal", "shifted", "spiky", "structure"]
"""``shifted``: scaled and shifted, so that no mean vanishes. ``spiky``: one row in 16, of every tensor, is eight times
as large, which makes scores of attention of several hundred. ``structure``: normal data in sequences of adversarial
lengths, over pages that are shared, neighbouring and out of order; only where there are sequences."""

SHIFTS: dict[str, tuple[float, float]] = {
    "Q": (2.0, 0.5),
    "K": (1.0, 0.25),
    "V": (2.0, 1.0),
    "DO": (0.5, 0.25),
    "B": (0.5, -0.25),
}
"""Scale and shift by the input's name, in capitals and without ``_CACHE``."""
DEFAULT_SHIFT = (2.0, 0.5)
SPIKE = 8.0
SPIKE_PERIOD = 16
_SPIKE_STREAM = 0x5DEECE66D
"""Keeps the choice of rows apart from whatever else is made from the key."""
_SEED_BITS = 63


def families_of(case: Case) -> tuple[str, ...]:
    """Names of the case's families, the official one first.

    Only of operations that an oracle of ours knows: what an unknown operator was not made for may be no data of it. And
    only where all data is drawn: captured inputs, such as the LSE of a forward pass, fit the official data alone.
    """
    if case.baseline.call not in ORACLES or given_names(case):
        return (OFFICIAL_FAMILY,)
    with_sequences = case.structure() is not None
    return (OFFICIAL_FAMILY, "shifted", "spiky", *(("structure",) if with_sequences else ()))


def transform(family: str, name: str, tensor: torch.Tensor, key: int) -> None:
    """Turn the standard normal elements of an input, made from ``key``, into the family's; asynchronous."""
    if family == "shifted":
        scale, shift = SHIFTS.get(name.upper().removesuffix("_CACHE"), DEFAULT_SHIFT)
        tensor.mul_(scale).add_(shift)
    elif family == "spiky":
        rows = tensor.view(-1, tensor.shape[-1])
        rows.mul_(_spikes(rows, key))


def _spikes(rows: torch.Tensor, key: int) -> torch.Tensor:
    """The factor of each row: [rows, 1]. Exact in every floating-point type."""
    import torch

    chosen = torch.randint(
        SPIKE_PERIOD, (rows.shape[0], 1), generator=generator(rows, key ^ _SPIKE_STREAM), device=rows.device
    )
    return torch.where(chosen == 0, SPIKE, 1.0).to(rows.dtype)


def generator(tensor: torch.Tensor, key: int) -> torch.Generator:
    """Random numbers from a key, on the tensor's device."""
    import torch

    return torch.Generator(device=tensor.device).manual_seed(key & ((1 << _SEED_BITS) - 1))


def page_numbers(family: str, target: torch.Tensor, pages: int, key: int) -> torch.Tensor:
    """Numbers of pages for the places of an index input, as it wants them.

    Officially and in most families pages are distinct and in random order. ``structure`` shares them: a quarter of the
    places repeats others, runs of neighbours count up and down, and the first and the last page occur.
    """
    import torch

    random, count = generator(target, key), target.numel()
    if count > pages:
        chosen = torch.randint(pages, (count,), generator=random, device=target.device)
    else:
        chosen = torch.randperm(pages, generator=random, device=target.device)[:count]
    if family == "structure" and count >= 4:
        quarter = count // 4
        chosen[:quarter] = chosen[quarter : 2 * quarter].flip(0)
        ascending = torch.arange(quarter, device=target.device) % pages
        chosen[2 * quarter : 3 * quarter] = pages - 1 - ascending
        chosen[3 * quarter : 4 * quarter] = ascending
    return chosen.to(target.dtype)
