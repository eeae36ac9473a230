"""Tokens times prices."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.models.entry import Prices
from ptxbench.models.pricing import cost, price
from ptxbench.records import Usage

PRICES = Prices(input=2.0, cached_input=0.5, cache_write=2.5, output=10.0)
TOKENS = st.integers(0, 10**7)


def test_each_kind_of_token_has_its_price():
    usage = Usage(input_tokens=1_000_000, cached_input_tokens=400_000, output_tokens=100_000, reasoning_tokens=90_000)
    assert price(PRICES, usage) == 0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 10.0
    assert price(PRICES, usage, cache_write_tokens=200_000) == 0.4 * 2.0 + 0.4 * 0.5 + 0.2 * 2.5 + 0.1 * 10.0


def test_without_own_prices_cached_and_written_tokens_cost_as_others():
    usage = Usage(input_tokens=1_000_000, cached_input_tokens=400_000, output_tokens=0)
    assert price(Prices(input=2.0, output=1.0), usage, cache_write_tokens=1000) == 2.0


def test_unknown_counts_have_no_price():
    assert price(PRICES, Usage(input_tokens=5)) is None
    assert price(PRICES, Usage(output_tokens=5)) is None
    assert price(PRICES, Usage(input_tokens=1_000_000, output_tokens=0)) == 2.0


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_price_lies_between_its_bounds(tokens, cached, written, output):
    """Whatever a provider counts, more cached tokens than an estimate of all included."""
    usage = Usage(cached_input_tokens=cached, output_tokens=output).model_copy(update={"input_tokens": tokens})
    found = price(PRICES, usage, written)
    assert found is not None
    assert tokens * 0.5 + output * 10 <= round(found * 1e6, 3) <= tokens * 2.5 + output * 10


def test_the_first_that_knows_decides():
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert cost(PRICES, usage, stated=7.0) == (2.0, "models_file")
    assert cost(None, usage, stated=7.0, price_map=lambda: 1.0) == (7.0, "provider")
    assert cost(None, usage, price_map=lambda: 0.0) == (0.0, "price_map")
    assert cost(None, usage) == (None, "unknown")
    assert cost(PRICES, Usage()) == (None, "unknown")


def test_money_that_cannot_be_is_unknown():
    for usd in (-0.5, float("nan"), float("inf"), 1e9):
        assert cost(None, Usage(), stated=usd, price_map=lambda: 0.5) == (0.5, "price_map")
        assert cost(None, Usage(), price_map=partial(float, usd)) == (None, "unknown")
