from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.cases import Case, Layout, load_suite
from ptxbench.cases.structure import Structure, formula_values, structure_of
from ptxbench.errors import InputError
from tests.unit.cases import checkout

SUITE = load_suite(checkout.ROOT, "generalization")
RAGGED = SUITE.case("gqa_ragged_prefill_causal_h32_kv4_d128", "h100")
PAGED = SUITE.case("gqa_paged_prefill_causal_h24_kv8_d128_ps1", "h100")
DECODE = SUITE.case("gqa_paged_decode_h24_kv8_d128_ps1", "h100")
PREFILLS = ("gqa_ragged_prefill", "gqa_paged_prefill")


def of(case: Case, layout: Layout = "official") -> Structure:
    found = case.structure(layout)
    assert found is not None
    return found


def prefill(recipe: str, sequences: int, total_q: int, total_kv: int) -> dict[str, int]:
    keys = "total_kv" if recipe == "gqa_ragged_prefill" else "num_kv_indices"
    return {"len_indptr": sequences + 1, "total_q": total_q, keys: total_kv}


def test_the_official_lengths_are_the_same_on_every_machine():
    """They decide what is measured: a change of these numbers is another workload."""
    assert of(RAGGED).q_lengths[:6] == (298, 871, 842, 472, 248, 187)
    assert of(DECODE).kv_lengths == (*(713, 965, 908, 677, 928, 185, 649, 346, 947, 838, 455, 668, 218, 900, 228),)
    assert of(PAGED) == Structure((892,), (892,), causal=True)


def test_protocol_totals():
    assert (len(of(RAGGED).q_lengths), sum(of(RAGGED).q_lengths)) == (33, 16294)
    assert (len(of(DECODE).kv_lengths), sum(of(DECODE).kv_lengths)) == (15, 9625)


def test_adversarial_lengths():
    lengths = of(RAGGED, "adversarial").q_lengths
    assert {0, 1, 2, 63, 64, 65, 127, 128, 129} < set(lengths)
    assert max(lengths) > 0.9 * sum(lengths)
    decode = of(DECODE, "adversarial").kv_lengths
    assert {1, 2, 63, 64, 65, 127, 128, 129} < set(decode)
    assert (min(decode), max(decode) > 0.9 * sum(decode)) == (1, True)


def test_another_uuid_has_other_lengths():
    axes = RAGGED.axes
    assert structure_of(RAGGED.input_recipe, axes, "a") != structure_of(RAGGED.input_recipe, axes, "b")


def test_offsets_and_pairs():
    structure = Structure((2, 0, 3), (5, 1, 3), causal=True)
    assert structure.qo_indptr == (0, 2, 2, 5)
    assert structure.kv_indptr == (0, 5, 6, 9)
    # Query 0 of the first sees 4 keys, query 1 all 5; the last three see 1, 2, 3.
    assert structure.pairs == 4 + 5 + 1 + 2 + 3
    assert Structure((1, 1), (7, 2), causal=False).pairs == 9


def test_formulas_see_the_pairs_of_a_workload_with_sequences_alone():
    values = formula_values(DECODE.input_recipe, DECODE.axes, DECODE.workload.uuid)
    assert values == {**DECODE.axes, "pairs": 9625}
    assert formula_values("normal", {"M": 3}, "uuid") == {"M": 3}
    assert RAGGED.flops == 4 * 32 * 128 * of(RAGGED).pairs


@given(
    st.sampled_from(PREFILLS), st.integers(1, 40), st.integers(0, 3000), st.integers(0, 3000), st.text(max_size=8),
    st.sampled_from(["official", "adversarial"]),
)  # fmt: skip
def test_any_prefill_has_lengths_that_add_up(recipe, sequences, more_queries, more_keys, uuid, layout):
    total_q = sequences + more_queries
    structure = structure_of(recipe, prefill(recipe, sequences, total_q, total_q + more_keys), uuid, layout)
    assert structure is not None
    assert len(structure.q_lengths) == len(structure.kv_lengths) == sequences
    assert (sum(structure.q_lengths), sum(structure.kv_lengths)) == (total_q, total_q + more_keys)
    assert all(0 <= q <= kv for q, kv in zip(structure.q_lengths, structure.kv_lengths, strict=True))
    if layout == "official":
        assert min(structure.q_lengths) >= 1


@given(st.integers(1, 40), st.integers(0, 3000), st.text(max_size=8), st.sampled_from(["official", "adversarial"]))
def test_any_decoding_has_a_key_for_each_sequence(batch, more, uuid, layout):
    axes = {"batch_size": batch, "len_indptr": batch + 1, "num_kv_indices": batch + more}
    structure = structure_of("gqa_paged_decode", axes, uuid, layout)
    assert structure is not None
    assert structure.q_lengths == (1,) * batch
    assert (min(structure.kv_lengths) >= 1, sum(structure.kv_lengths)) == (True, batch + more)


@pytest.mark.parametrize(
    ("recipe", "axes", "expected"),
    [
        ("gqa_ragged_prefill", prefill("gqa_ragged_prefill", 4, 3, 9), "at least one query for each sequence"),
        ("gqa_paged_prefill", prefill("gqa_paged_prefill", 1, 9, 8), "at least as many keys as queries"),
        ("gqa_paged_decode", {"batch_size": 3, "len_indptr": 3, "num_kv_indices": 9}, "len_indptr = batch_size"),
        ("gqa_paged_decode", {"batch_size": 3, "len_indptr": 4, "num_kv_indices": 2}, "at least one key"),
    ],
)
def test_axes_that_cannot_be_are_named(recipe, axes, expected):
    with pytest.raises(InputError, match=expected):
        structure_of(recipe, axes, "uuid")
