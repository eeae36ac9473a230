"""What providers say of themselves, as records keep it."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Reply, Usage

MOST = 2**53
COUNTS = st.none() | st.integers(-10, 10) | st.integers(-(2**70), 2**70)


def reply(**fields: Any) -> Reply:
    plain: dict[str, Any] = {"text": "t", "ended": "stop", "finish_reason": "stop", "latency_s": 1.0, "model": "m"}
    return Reply(**plain | fields)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"input_tokens": -1, "output_tokens": 5}, Usage(output_tokens=5)),
        ({"input_tokens": 10**400, "cached_input_tokens": 4}, Usage(cached_input_tokens=4)),
        ({"input_tokens": 10, "cached_input_tokens": -4}, Usage(input_tokens=10)),
        ({"input_tokens": 10, "cached_input_tokens": 11, "output_tokens": 1}, Usage(output_tokens=1)),
        ({"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 6}, Usage(input_tokens=10)),
        ({"input_tokens": MOST, "output_tokens": MOST + 1}, Usage(input_tokens=MOST)),
    ],
)
def test_counts_that_cannot_be_are_not_told(told, kept):
    assert Usage(**told) == kept
    assert Usage.model_validate_json(json.dumps(told)) == kept


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_whatever_is_told_a_usage_can_be(taken, cached, given_, thought):
    usage = Usage(input_tokens=taken, cached_input_tokens=cached, output_tokens=given_, reasoning_tokens=thought)
    found = usage.model_dump()
    assert all(count is None or 0 <= count <= MOST for count in found.values())
    for part, whole in (("cached_input_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        assert found[part] is None or found[whole] is None or found[part] <= found[whole]
    assert Usage.model_validate_json(usage.model_dump_json()) == usage


@pytest.mark.parametrize(
    ("told", "kept"),
    [(0.0, 0.0), (0.25, 0.25), (3, 3.0), (-0.01, None), (1e308, None), (math.inf, None), (math.nan, None)],
)
def test_money_that_cannot_be_is_not_told(told, kept):
    assert reply(cost_usd=told).cost_usd == kept


@given(st.text(st.characters(codec=None) | st.characters(categories=["Cs"])))
def test_any_text_can_be_stored(text):
    names = ("text", "reasoning", "source", "finish_reason", "model", "response_id")
    found = reply(**dict.fromkeys(names, text))
    assert Reply.model_validate_json(found.model_dump_json()) == found
    for name in names:
        getattr(found, name).encode()


def test_what_can_be_stored_stays_as_it_is():
    assert reply(text="Ünïcode \U0001f600\u2028\x00").text == "Ünïcode \U0001f600\u2028\x00"
    assert reply(text="\ud83d\ude00 \ud800").text == "\U0001f600 \ufffd"
