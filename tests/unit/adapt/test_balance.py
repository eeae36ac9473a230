"""Balancing: what stays, in which proportion, and on what it depends."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.adapt.balance import Place, allocate, keep, rank

SIZES = st.dictionaries(
    st.tuples(st.sampled_from(["compile_error", "timeout"]), st.integers(0, 9)), st.integers(1, 60), min_size=1
)


def place(item: Place) -> Place:
    return item


def items(sizes: dict[tuple[str, int], int], group: str = "gemm") -> list[Place]:
    return [
        Place((group, "h100"), stratum, f"{group}{stratum}{n}") for stratum, size in sizes.items() for n in range(size)
    ]


@given(SIZES, st.integers(1, 200))
def test_shares_are_the_proportional_ones_rounded_up_or_down_and_add_up(sizes, cap):
    shares = allocate(sizes, cap)
    total = sum(sizes.values())
    assert sum(shares.values()) == min(cap, total)
    for key, size in sizes.items():
        exact = size * min(cap, total) / total
        assert shares[key] <= size
        assert abs(shares[key] - exact) < 1


def test_the_largest_remainders_get_what_is_left():
    # Exactly 4.5, 2.7 and 1.8 of 9: the floors leave two places.
    assert allocate({("a", 0): 50, ("b", 0): 30, ("c", 0): 20}, 9) == {("a", 0): 4, ("b", 0): 3, ("c", 0): 2}


def test_equal_remainders_go_to_the_larger_stratum_then_to_the_smaller_key():
    assert allocate({("a", 0): 1, ("b", 0): 3}, 2) == {("a", 0): 0, ("b", 0): 2}
    assert allocate({("b", 0): 1, ("a", 0): 1}, 1) == {("a", 0): 1, ("b", 0): 0}


@given(SIZES, st.integers(1, 60), st.integers(0, 3), st.randoms())
def test_what_stays_does_not_depend_on_the_order_in_which_it_came(sizes, cap, seed, dice):
    everything = items(sizes)
    kept = keep(everything, place, cap, seed)
    assert kept == [item for item in everything if item in set(kept)]
    shuffled = list(everything)
    dice.shuffle(shuffled)
    assert set(keep(shuffled, place, cap, seed)) == set(kept)
    assert Counter(item.stratum for item in kept) == +Counter(allocate(sizes, cap))


def test_each_group_has_its_own_cap():
    sizes = {("timeout", 0): 10}
    kept = keep([*items(sizes, "gemm"), *items(sizes, "mha"), *items({("timeout", 1): 2}, "rare")], place, 4, 0)
    assert Counter(item.group[0] for item in kept) == {"gemm": 4, "mha": 4, "rare": 2}


def test_another_seed_keeps_others():
    everything = items({("timeout", 0): 40})
    assert keep(everything, place, 10, 0) != keep(everything, place, 10, 1)


def test_what_stays_is_no_prefix_of_the_ids():
    dice = random.Random(0)
    ids = [f"{dice.getrandbits(64):016x}" for _ in range(50)]
    assert sorted(ids, key=lambda one: rank(one, 0)) != sorted(ids)
