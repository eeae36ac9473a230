"""What a call cost. The only place that multiplies tokens by prices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from ptxbench.models.entry import Prices
from ptxbench.records import Usage
from ptxbench.records.conversation import possible_price

CostSource = Literal["models_file", "provider", "price_map", "unknown"]

_MILLION = 1e6


class Cost(NamedTuple):
    """US dollars, None where unknown, and who says so."""

    usd: float | None
    source: CostSource


UNKNOWN = Cost(None, "unknown")


def price(prices: Prices, usage: Usage, cache_write_tokens: int = 0) -> float | None:
    """US dollars of ``usage``; None where the provider did not count the tokens.

    ``cache_write_tokens`` of the input were written to the provider's cache.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_input_tokens or 0, usage.input_tokens)
    written = min(cache_write_tokens, usage.input_tokens - cached)
    cached_price = prices.input if prices.cached_input is None else prices.cached_input
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    fresh = usage.input_tokens - cached - written
    total = fresh * prices.input + cached * cached_price + written * write_price + usage.output_tokens * prices.output
    return total / _MILLION


def cost(
    prices: Prices | None,
    usage: Usage,
    *,
    cache_write_tokens: int = 0,
    stated: float | None = None,
    price_map: Callable[[], float | None] = lambda: None,
) -> Cost:
    """The cost of a call by the first that knows: the entry's prices, what the provider states, the price map.

    A price that cannot be, such as a negative one, is none.
    """
    if prices is not None and (known := price(prices, usage, cache_write_tokens)) is not None:
        return Cost(known, "models_file")
    if (said := possible_price(stated)) is not None:
        return Cost(said, "provider")
    mapped = possible_price(price_map())
    return UNKNOWN if mapped is None else Cost(mapped, "price_map")
