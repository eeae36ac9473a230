"""Sequence lengths of the ragged and paged workloads: what their index inputs say, and what work they ask for.

Public collections store one captured set of lengths for each workload as a blob. Ours are computed from the workload's
uuid and axes, by integer arithmetic on SHA-256, so that every machine has the same ones without a blob.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import accumulate, cycle, islice
from typing import Literal, NamedTuple

from ptxbench.errors import InputError

Layout = Literal["official", "adversarial"]
"""``official``: the workload's own lengths. ``adversarial``: of the same totals, with sequences of length 1 and, where
they may be empty, 0, lengths around the sizes of tiles, and one sequence that has nearly everything."""

PAIRS = "pairs"
"""Name under which the formulas of ``flops`` and ``bytes`` find ``Structure.pairs``."""

_WEIGHTS = 1000
_SMALL = (1, 0, 2, 64, 1, 127, 128, 129, 1, 0, 63, 65)
"""Lengths of the short sequences of an adversarial layout, repeated as needed."""


class Structure(NamedTuple):
    """Queries and keys of each sequence. Under a causal mask a sequence's queries are the last ones of its keys."""

    q_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    causal: bool

    @property
    def qo_indptr(self) -> tuple[int, ...]:
        """First query of each sequence, and the number of all."""
        return (0, *accumulate(self.q_lengths))

    @property
    def kv_indptr(self) -> tuple[int, ...]:
        """First key of each sequence, and the number of all."""
        return (0, *accumulate(self.kv_lengths))

    @property
    def pairs(self) -> int:
        """(Query, key) pairs that the mask leaves, of one head."""
        return sum(
            q * kv - (q * (q - 1) // 2 if self.causal else 0)
            for q, kv in zip(self.q_lengths, self.kv_lengths, strict=True)
        )


def structure_of(recipe: str, axes: Mapping[str, int], uuid: str, layout: Layout = "official") -> Structure | None:
    """The sequences of a workload; None for a recipe without sequences of its own.

    ``axes`` are all axes of the definition. Raises InputError where they cannot be those of such a workload.
    """
    if recipe == "gqa_paged_decode":
        _expect(
            axes["len_indptr"] == axes["batch_size"] + 1,
            f"len_indptr = batch_size + 1 = {axes['batch_size'] + 1}",
            axes,
        )
        _expect(axes["num_kv_indices"] >= axes["batch_size"], "at least one key for each sequence", axes)
        keys = _lengths(axes["batch_size"], axes["num_kv_indices"], uuid, layout, least=1)
        return Structure((1,) * axes["batch_size"], keys, causal=False)
    if recipe not in ("gqa_ragged_prefill", "gqa_paged_prefill"):
        return None
    total_kv = axes["total_kv"] if recipe == "gqa_ragged_prefill" else axes["num_kv_indices"]
    sequences, total_q = axes["len_indptr"] - 1, axes["total_q"]
    _expect(sequences >= 1 and total_q >= sequences, "at least one query for each sequence", axes)
    _expect(total_kv >= total_q, "at least as many keys as queries", axes)
    queries = _lengths(sequences, total_q, uuid, layout, least=0)
    keys = tuple(q + more for q, more in zip(queries, _extra_keys(queries, total_kv - total_q, layout), strict=True))
    return Structure(queries, keys, causal=True)


def formula_values(recipe: str, axes: Mapping[str, int], uuid: str) -> dict[str, int]:
    """What the formulas of a case may name: its axes and, of a workload with sequences, ``pairs``."""
    structure = structure_of(recipe, axes, uuid)
    return dict(axes) if structure is None else {**axes, PAIRS: structure.pairs}


def _expect(holds: bool, expected: str, axes: Mapping[str, int]) -> None:
    if not holds:
        found = ", ".join(f"{name} = {size}" for name, size in axes.items())
        raise InputError(f"sequences of a workload: expected {expected}, found {found}; correct the workload's axes")


def _lengths(count: int, total: int, uuid: str, layout: Layout, *, least: int) -> tuple[int, ...]:
    """``count`` lengths that add up to ``total``. The official ones are at least 1, the others at least ``least``."""
    if layout == "official":
        weights = list(islice(_weights(uuid), count))
        spread, whole = total - count, sum(weights)
        shares = [1 + spread * weight // whole for weight in weights]
        shares[0] += total - sum(shares)
        return tuple(shares)
    most = max(1, total // (2 * count))
    short = [max(least, min(length, most)) for length in islice(cycle(_SMALL), count - 1)]
    # Between the short ones and in nobody's place, so that each of them occurs where there are enough sequences.
    return (*short[: count // 2], total - sum(short), *short[count // 2 :])


def _extra_keys(queries: tuple[int, ...], extra: int, layout: Layout) -> tuple[int, ...]:
    """Keys before the first query of each sequence, ``extra`` in all."""
    count = len(queries)
    added = [extra // count] * count
    if layout == "adversarial":
        # Keys that no query sees, and the longest history for the longest sequence.
        added = [0] * count
        added[queries.index(min(queries))] = extra // 2
    added[count // 2] += extra - sum(added)
    return tuple(added)


def _weights(uuid: str) -> Iterator[int]:
    """From 1 to 1000, the same on every machine."""
    index = 0
    while True:
        digest = hashlib.sha256(f"{uuid}/{index}".encode()).digest()
        yield from (1 + int.from_bytes(digest[at : at + 4], "big") % _WEIGHTS for at in range(0, 32, 4))
        index += 1
