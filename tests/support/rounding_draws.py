"""How often BF16 rounding alone takes a causal backward pass beyond tolerance, and whether kernels agree on the draws.

    python -m tests.support.rounding_draws [DRAWS]

dQ and dK for the first rows of 192 heads (B 4, H 48) of 128, as ``mha_bwd_d128_causal`` has them: later rows average
over more keys and are far from the bound. What a kernel does with fp32 accumulators and BF16 operands is
computed in three ways that differ in where the scale is applied before dS is rounded. On the CPU, half a second a draw;
docs/verdict-rules.md has the result of 1,200 draws.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from ptxbench.cases.defaults import DEFAULT_TOLERANCE
from ptxbench.profiler.qualification import QUALIFYING_SHARE

if TYPE_CHECKING:
    import torch

HEADS, ROWS, DIM = 192, 192, 128
SCALE = 1 / math.sqrt(DIM)
BEFORE = {"scaled": SCALE, "unscaled": 1.0, "base 2": math.log2(math.e)}
"""Factor of dS when it is rounded; the rest is applied to the product."""


def bf16(value: torch.Tensor) -> torch.Tensor:
    """Rounded to BF16, as fp32."""
    return value.bfloat16().float()


def worst_ratios() -> dict[str, float]:
    """Of one draw: the largest error over its bound, for each way to round; 1 is where the official rule fails."""
    import torch

    query, key, value, grad = (bf16(torch.randn(HEADS, ROWS, DIM)) for _ in range(4))
    scores = query @ key.mT * SCALE
    scores.masked_fill_(torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1), -math.inf)
    weights = torch.softmax(scores, -1)
    delta = (grad * bf16(bf16(weights) @ value)).sum(-1, keepdim=True)
    gradient = weights * (grad @ value.mT - delta)
    found = {}
    for name, factor in BEFORE.items():
        rounded = bf16(gradient * factor)
        ratios = []
        for exact, given, other in ((gradient, rounded, key), (gradient.mT, rounded.mT, query)):
            wanted, output = bf16(exact * SCALE @ other), bf16(given @ other * (SCALE / factor))
            bound = DEFAULT_TOLERANCE.atol + DEFAULT_TOLERANCE.rtol * wanted.abs()
            ratios.append(((output - wanted).abs() / bound).max())
        found[name] = float(max(ratios))
    return found


def main(draws: int) -> None:
    """Print shares of draws and correlations."""
    import torch

    torch.manual_seed(2)
    rows = [worst_ratios() for _ in range(draws)]
    table = torch.tensor([list(row.values()) for row in rows])
    qualified = table[:, 0] <= QUALIFYING_SHARE
    for index, name in enumerate(BEFORE):
        beyond = table[:, index] > 1
        alone, behind = beyond.float().mean(), beyond[qualified].float().mean()
        sys.stdout.write(f"{name}: beyond tolerance on {alone:.2%} of draws; ")
        sys.stdout.write(f"{behind:.2%} of those where the first is within {QUALIFYING_SHARE} of it\n")
    sys.stdout.write(f"correlation of the largest errors: {torch.corrcoef(table.mT).round(decimals=2).tolist()}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
