"""Answers in pieces and whole."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.models.client import ModelError
from ptxbench.models.openai_answer import Answer, Assembly, ended, read_answer, read_json, read_usage
from ptxbench.models.pricing import UNKNOWN
from ptxbench.models.secrets import Scrubber, Secret
from ptxbench.records import Usage
from tests.unit.models.parts import KEY


def whole(message: object, finish: object = "stop", **fields: Any) -> dict[str, Any]:
    return {"id": "i", "model": "m", "choices": [{"message": message, "finish_reason": finish}], **fields}


def piece(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}], **fields}


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "a", "reasoning_content": "r"}, "a", "r"),
        ({"content": "a", "reasoning": "r"}, "a", "r"),
        ({"content": "a", "reasoning": "r", "reasoning_content": "r"}, "a", "r"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]}, "ab", ""),
        ({"content": None, "reasoning": "r"}, "", "r"),
        ({"content": None, "refusal": "no"}, "no", ""),
    ],
)
def test_text_and_thinking_are_kept_apart(message, text, reasoning):
    answer = read_answer(whole(message))
    assert (answer.text, answer.reasoning) == (text, reasoning)
    assert (answer.model, answer.response_id) == ("m", "i")


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("length", "output_limit"),
        ("max_tokens", "output_limit"),
        ("content_filter", "filtered"),
        ("SAFETY", "unknown"),
        ("tool_calls", "unknown"),
    ],
)
def test_how_an_answer_ended(word, meaning):
    assert ended(word) == meaning


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, "malformed_response"),
        ({"choices": []}, "malformed_response"),
        ({"choices": "x"}, "malformed_response"),
        ({"choices": [{"text": "old"}]}, "malformed_response"),
        (whole({"content": "half"}, None), "connection"),
        (whole({"content": "half"}, "abort"), "server_error"),
    ],
)
def test_what_is_not_whole_is_no_answer(data, kind):
    with pytest.raises(ModelError) as caught:
        read_answer(data)
    assert caught.value.kind == kind


@given(st.text(), st.lists(st.integers(0, 200), max_size=8))
def test_pieces_make_the_whole(text, cuts):
    bounds = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    assembly = Assembly()
    assembly.add(piece({"role": "assistant", "content": ""}, id="i", model="m"))
    for start, end in itertools.pairwise(bounds):
        assembly.add(piece({"content": text[start:end]}))
    assert not assembly.finished
    assembly.add(piece({}, "length"))
    assembly.add({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    answer = assembly.answer()
    assert (answer.text, answer.finish_reason, answer.model) == (text, "length", "m")
    assert answer.usage == Usage(input_tokens=1, output_tokens=2)


def test_a_piece_without_a_delta_is_malformed():
    Assembly().add(piece(None, "stop"))
    with pytest.raises(ModelError, match=r"expected a delta"):
        Assembly().add({"choices": [{"delta": "text"}]})


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input_tokens=10, cached_input_tokens=4, output_tokens=5, reasoning_tokens=3),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None, "reasoning_tokens": 2},
            Usage(input_tokens=10, output_tokens=5, reasoning_tokens=2),
        ),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 11}, Usage()),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}, Usage(input_tokens=10, cached_input_tokens=8)),
        ({"prompt_tokens": "10", "completion_tokens": -1}, Usage()),
        ({"prompt_tokens": True}, Usage()),
        ({"prompt_tokens": 10**400, "completion_tokens": 5}, Usage(output_tokens=5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "reasoning_tokens": 6}, Usage(input_tokens=10)),
        ({}, Usage()),
    ],
)
def test_tokens_as_servers_count_them(usage, expected):
    assert read_usage(usage) == expected


def test_a_stated_cost_is_kept():
    assert read_answer(whole({"content": "a"}, usage={"cost": 0.25})).stated_cost == 0.25
    for cost in ("dear", -1, 10**400, float("nan"), True):
        assert read_answer(whole({"content": "a"}, usage={"cost": cost})).stated_cost is None


def test_of_several_choices_the_first_counts_in_any_order():
    def choice(index: int, text: str, finish: str | None = "stop", key: str = "message") -> dict[str, Any]:
        return {"index": index, key: {"content": text}, "finish_reason": finish}

    assert read_answer({"choices": [choice(1, "B"), choice(0, "A")]}).text == "A"
    with pytest.raises(ModelError, match=r"expected choices with a message"):
        read_answer({"choices": [choice(1, "B")]})
    assembly = Assembly()
    for index, text, finish in [(1, "B", None), (0, "A", None), (1, "B2", "stop"), (0, "A2", "length")]:
        assembly.add({"choices": [choice(index, text, finish, "delta")]})
    answer = assembly.answer()
    assert (answer.text, answer.finish_reason) == ("AA2", "length")


def test_a_reply_holds_no_key_that_was_sent():
    answer = Answer(KEY, f"a{KEY}", KEY, Usage(), KEY, f"{KEY}b")
    found = answer.reply(price=UNKNOWN, latency_s=1.0, model="m", scrub=Scrubber(Secret(KEY)))
    assert KEY not in repr(found)
    assert (found.text, found.reasoning, found.model) == ("[hidden]", "a[hidden]", "[hidden]")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "<html>", "[" * 100_000])
def test_what_is_not_a_json_object_is_malformed(text):
    with pytest.raises(ModelError) as caught:
        read_json(text, "the answer")
    assert caught.value.kind == "malformed_response"
