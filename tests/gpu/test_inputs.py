"""What draws hold: standard normal elements, a function of the key alone, without trace of one another."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from ptxbench.profiler.inputs import NormalTensor  # noqa: E402 - torch first

COUNT = 1 << 24
KEYS = (0, 1, 2**63, 0x0123456789ABCDEF)


def made(key: int, count: int = COUNT, dtype: str = "float32"):
    tensor = torch.full((count,), float("nan"), dtype=getattr(torch, dtype), device="cuda")
    NormalTensor(tensor).fill(key)
    return tensor


def changed(tensor, key: int) -> bool:
    return bool(NormalTensor(tensor).changed(key))


@pytest.mark.parametrize("key", KEYS)
def test_elements_are_standard_normal(key: int) -> None:
    values = made(key).double().sort().values
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded by one honest sample in a thousand; three times that by none.
    steps = (torch.arange(COUNT, dtype=torch.float64, device="cuda") + 0.5) / COUNT
    assert float((torch.special.ndtr(values) - steps).abs().max()) < 3 * 1.95 / COUNT**0.5
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        spread = (float((values ** (2 * power)).mean()) / COUNT) ** 0.5
        assert float((values**power).mean()) == pytest.approx(moment, abs=6 * spread)
    assert 5.0 < float(values.abs().max()) < 5.7


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 8, 16, 128, 4096, 5120, 7168, 1056 * 256 * 8])
def test_neighbours_are_independent(lag: int) -> None:
    values = made(5, 2 * COUNT).double()
    first, second = values[:COUNT], values[lag : lag + COUNT]
    bound = 6 / COUNT**0.5
    assert abs(float((first * second).mean())) < bound
    assert abs(float(((first**2 - 1) * (second**2 - 1)).mean()) / 2) < bound


@pytest.mark.parametrize("other", [1, 2, 1 << 32, (1 << 64) - 1])
def test_keys_that_differ_in_little_give_independent_elements(other: int) -> None:
    first, second = made(0).double(), made(other).double()
    assert abs(float((first * second).mean())) < 6 / COUNT**0.5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 1001, 3_000_001])
def test_every_element_is_written_by_the_key_alone(count: int, dtype: str) -> None:
    tensor = made(99, count + 8, dtype)[:count]
    whole = made(99, count, dtype)
    assert torch.equal(tensor, whole)
    assert torch.equal(whole.float(), made(99, count).to(whole.dtype).float())
    assert not changed(whole, 99)
    assert changed(whole, 100)


@pytest.mark.parametrize("position", [0, 1, 5, 999_999, 1_000_002])
def test_one_changed_bit_is_found(position: int) -> None:
    tensor = made(3, 1_000_003, "bfloat16")
    tensor.view(torch.int16)[position] ^= 1
    assert changed(tensor, 3)


def test_a_write_beyond_the_count_does_not_happen() -> None:
    tensor = torch.full((64,), 7.0, dtype=torch.bfloat16, device="cuda")
    NormalTensor(tensor[:13]).fill(1)
    assert tensor[13:].eq(7.0).all()


@pytest.mark.parametrize("key", KEYS[:2])
def test_both_tails_are_normal(key: int) -> None:
    """Radius and angle share bits of their words, but only the least: none may decide a direction."""
    for seed in range(16):
        values = made(key + seed, 4 * COUNT)
        for at in (4.0, 4.5):
            expected = float(torch.special.ndtr(torch.tensor(-at, dtype=torch.float64))) * values.numel()
            for beyond in (values > at, values < -at):
                assert abs(float(beyond.sum()) - expected) < 6 * expected**0.5 + 0.05 * expected
