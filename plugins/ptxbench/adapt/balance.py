"""Which records stay where there are too many of one kind. Pure, and the same on every machine."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Place(NamedTuple):
    """Where a record counts."""

    group: tuple[str, ...]
    """What is capped: definition and architecture."""
    stratum: tuple[str, int]
    """Outcome and turn, whose shares stay as they are."""
    id: str


def keep(items: Iterable[T], place: Callable[[T], Place], cap: int, seed: int) -> list[T]:
    """At most ``cap`` items of each group, in proportion to its strata; in the order in which they came.

    Within a stratum those with the smallest hash of seed and id stay, so that what stays depends on nothing but what
    there is: not on names of folders, nor on which variant or trajectory comes first.
    """
    groups: dict[tuple[str, ...], list[tuple[Place, T]]] = defaultdict(list)
    entries = [(place(item), item) for item in items]
    for entry in entries:
        groups[entry[0].group].append(entry)
    kept: set[str] = set()
    for group in groups.values():
        kept |= _kept([at for at, _ in group], cap, seed)
    return [item for at, item in entries if at.id in kept]


def _kept(places: list[Place], cap: int, seed: int) -> set[str]:
    strata: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for at in places:
        strata[at.stratum].append(at)
    shares = allocate({stratum: len(found) for stratum, found in strata.items()}, cap)
    return {
        at.id
        for stratum, found in strata.items()
        for at in sorted(found, key=lambda at: rank(at.id, seed))[: shares[stratum]]
    }


def allocate(sizes: Mapping[Any, int], cap: int) -> dict[Hashable, int]:
    """How many of ``cap`` places each stratum gets: its share by largest remainders, never more than it has.

    Equal remainders go to the larger stratum, then to the smaller key. All stay where there is room for all.
    """
    total = sum(sizes.values())
    if total <= cap:
        return dict(sizes)
    shares: dict[Hashable, int] = {key: size * cap // total for key, size in sizes.items()}
    left = cap - sum(shares.values())
    first = sorted(sizes, key=lambda key: (-(sizes[key] * cap % total), -sizes[key], key))
    for key in first[:left]:
        shares[key] += 1
    return shares


def rank(id: str, seed: int) -> str:  # noqa: A002 - what it is called everywhere
    """The place of a record in its stratum."""
    return hashlib.sha256(f"{seed}\0{id}".encode()).hexdigest()
