"""What a session may still spend, and each worker's part of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ptxbench.agent.budget import Budget, Spent


class Allotment(NamedTuple):
    """Settled once, before anything is spent, so that a replaced worker has what its predecessor left.

    Of plain values alone, which xdist can tell its workers.
    """

    usd: float | None
    """``--budget-usd``; None: no limit."""
    tokens: int | None
    """``--budget-tokens``; None: no limit."""
    workers: int
    spent: dict[str, tuple[float, int]]
    """By trajectory, what earlier sessions spent: dollars and tokens."""

    def budget(self, own: Collection[str] = (), now: Callable[[], dict[str, Spent]] = dict) -> Budget:
        """The budget of a process whose trajectories are ``own``. ``now`` reads what was spent up to this moment."""
        from ptxbench.agent.budget import NO_LIMITS, Budget, Limits, Spent, total

        limits = Limits(self.usd, self.tokens)
        if limits == NO_LIMITS:
            return Budget()
        earlier = {name: Spent(*values) for name, values in self.spent.items()}
        limits = limits.less(total(earlier.values()), self.workers)
        if own:
            spent = now()
            limits = limits.less(total(spent.get(name, Spent()).minus(earlier.get(name, Spent())) for name in own))
        share = "this worker's share of " if self.workers > 1 else ""
        return Budget(limits, (f"{share}--budget-usd {self.usd}", f"{share}--budget-tokens {self.tokens}"))
