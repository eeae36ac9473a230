"""What the families hold, and that drawn and index inputs are what their keys and families say: on the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.cases import Case
from ptxbench.cases.collection_case import CollectionCase
from ptxbench.profiler.families import SPIKE, families_of, generator, page_numbers, transform
from ptxbench.profiler.inputs import InputSource
from ptxbench.trace.workload import SafetensorsInput
from tests.support.small_cases import NAMES, PAIRS, small_case

RAGGED = "gqa_ragged_prefill_causal_h32_kv4_d128"
DECODE = "gqa_paged_decode_h24_kv8_d128_ps1"


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_the_official_family_comes_first():
    for name in NAMES:
        wanted = (
            ("normal", "shifted", "spiky", "structure") if name.startswith("gqa") else ("normal", "shifted", "spiky")
        )
        assert families_of(small_case(name)) == wanted


def test_an_operation_that_nobody_knows_has_the_official_family_alone():
    case = small_case("gemm_n7168_k5120")
    unknown = case.model_copy(update={"baseline": case.baseline.model_copy(update={"call": "other"})})
    assert families_of(unknown) == ("normal",)


def test_captured_inputs_fit_the_official_data_alone():
    case = small_case("mha_bwd_d64")
    captured = SafetensorsInput(type="safetensors", path="blob.safetensors", tensor_key="L")
    workload = case.workload.model_copy(update={"inputs": {**case.workload.inputs, "L": captured}})
    fields = {name: getattr(case, name) for name in Case.model_fields} | {
        "workload": workload,
        "input_recipe": "normal",
    }
    subject = CollectionCase(**fields, collection_root="somewhere", blobs={"L": "0" * 64})
    assert families_of(subject) == ("normal",)


@pytest.mark.parametrize("family", ["normal", "structure"])
def test_data_stays_normal(family):
    data = normal(64, 32)
    before = data.clone()
    transform(family, "Q", data, 7)
    assert torch.equal(data, before)


@pytest.mark.parametrize(
    ("name", "mean", "std"), [("Q", 0.5, 2), ("k", 0.25, 1), ("v_cache", 1, 2), ("dO", 0.25, 0.5), ("A", 0.5, 2)]
)
def test_shifted_data_has_no_mean_of_zero(name, mean, std):
    data = normal(1000, 100)
    transform("shifted", name, data, 7)
    assert float(data.mean()) == pytest.approx(mean, abs=0.03)
    assert float(data.std()) == pytest.approx(std, rel=0.02)


def test_spikes_are_whole_rows():
    data = normal(3, 500, 64, dtype=torch.bfloat16)
    before = data.clone()
    transform("spiky", "K", data, 7)
    ratio = (data / before).view(-1, 64)
    assert set(ratio.unique().tolist()) == {1.0, SPIKE}
    assert (ratio.min(1).values == ratio.max(1).values).all()
    assert float((ratio[:, 0] == SPIKE).float().mean()) == pytest.approx(1 / 16, rel=0.3)
    again, other = before.clone(), before.clone()
    transform("spiky", "K", again, 7)
    transform("spiky", "K", other, 8)
    assert torch.equal(again, data)
    assert not torch.equal(other, data)


def test_large_keys_are_seeds_too():
    data = normal(4)
    assert torch.equal(
        torch.rand(3, generator=generator(data, (1 << 64) - 1)), torch.rand(3, generator=generator(data, (1 << 63) - 1))
    )


def test_official_pages_are_distinct_and_shuffled():
    pages = page_numbers("normal", torch.empty(900, dtype=torch.int32), 4000, 3)
    assert pages.dtype == torch.int32
    assert pages.unique().numel() == 900
    assert (pages >= 0).all()
    assert (pages < 4000).all()
    assert not torch.equal(pages, pages.sort().values)
    assert not torch.equal(pages, page_numbers("normal", torch.empty(900, dtype=torch.int32), 4000, 4))


def test_adversarial_pages_are_shared_and_in_runs():
    pages = page_numbers("structure", torch.empty(900, dtype=torch.int32), 4000, 3)
    assert torch.equal(pages[:225], pages[225:450].flip(0))
    assert (pages[450:675].diff() == -1).all()
    assert (pages[675:900].diff() == 1).all()
    assert {0, 3999} <= set(pages.tolist())
    assert (pages >= 0).all()
    assert (pages < 4000).all()


@pytest.mark.parametrize("family", ["normal", "structure"])
@pytest.mark.parametrize(("count", "pages"), [(1, 1), (3, 2), (9, 4), (40, 3)])
def test_few_pages_are_used_again(family, count, pages):
    found = page_numbers(family, torch.empty(count, dtype=torch.int32), pages, 1)
    assert found.shape == (count,)
    assert (found >= 0).all()
    assert (found < pages).all()


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_input_is_a_function_of_its_draw(name, family):
    """Made twice it is the same; one changed bit of any input is found; another draw is other data."""
    case = small_case(name)
    source = InputSource(case)
    draw, other = source.keep(family), source.keep(family)
    made, again = source.make(draw, "cpu"), source.make(draw, "cpu")
    assert list(made) != []
    assert set(made) == {tensor for tensor, shape in case.input_shapes().items() if shape is not None}
    assert all(torch.equal(made[tensor], again[tensor]) for tensor in made)
    drawn = {tensor: value for tensor, value in made.items() if tensor not in source.derived}
    bound = source.bind(made)
    assert not any(map(bool, bound.changed(draw)))
    different = source.make(other, "cpu")
    for tensor, value in drawn.items():
        # Lengths are the family's; everything else is drawn.
        assert torch.equal(value, different[tensor]) == tensor.endswith("indptr"), tensor
        raw = value.view(-1).view(torch.uint8)
        raw[-1] ^= 1
        assert sum(map(bool, bound.changed(draw))) == 1, tensor
        raw[-1] ^= 1


@pytest.mark.parametrize("name", [RAGGED, DECODE])
def test_offsets_are_the_structures(name):
    case = small_case(name)
    source = InputSource(case)
    official, adversarial = case.structure(), case.structure("adversarial")
    assert official != adversarial
    for family, structure in (("normal", official), ("shifted", official), ("structure", adversarial)):
        made = source.make(source.keep(family), "cpu")
        assert structure is not None
        assert tuple(made["kv_indptr"].tolist()) == structure.kv_indptr
        if name == RAGGED:
            assert tuple(made["qo_indptr"].tolist()) == structure.qo_indptr


def test_timed_draws_are_official_and_have_new_pages_each():
    source = InputSource(small_case(DECODE))
    draws = [source.draw() for _ in range(20)]
    assert {draw.family for draw in draws} == {"normal"}
    pages = {tuple(source.make(draw, "cpu")["kv_indices"].tolist()) for draw in draws}
    assert len(pages) == 20


def test_inputs_of_a_backward_pass_come_from_a_forward_pass():
    source = InputSource(small_case("mha_bwd_d96_causal"))
    made = source.make(source.keep("spiky"), "cpu")
    scores = made["Q"].double() @ made["K"].double().transpose(-1, -2) / 96**0.5
    scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    torch.testing.assert_close(made["L"], scores.logsumexp(-1).float(), rtol=1e-6, atol=1e-5)
    wanted = (scores.softmax(-1) @ made["V"].double()).to(torch.bfloat16)
    torch.testing.assert_close(made["O"], wanted, rtol=2**-7, atol=1e-6)
