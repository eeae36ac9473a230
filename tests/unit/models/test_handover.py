"""Conversations and replies as files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.models.entry import Prices
from ptxbench.models.handover import (
    conversation_text,
    file_name,
    previous_kernel,
    read_reply_file,
    to_json,
)
from ptxbench.records import Message, Usage
from tests.unit.models.parts import SYSTEM, USER


def answer(text: str) -> list[Message]:
    return [SYSTEM, USER, Message(role="assistant", content=text), Message(role="user", content="```cuda\nno\n```")]


def test_a_reply_needs_only_its_text():
    reply = read_reply_file(b'{"text": "t"}').reply(prices=None, model="subject", latency_s=1.5)
    assert (reply.text, reply.ended, reply.model, reply.latency_s) == ("t", "stop", "subject", 1.5)
    assert (reply.usage, reply.cost_usd, reply.cost_source) == (Usage(), None, "unknown")


def test_a_reply_may_say_more():
    content = {
        "text": "t",
        "reasoning": "r",
        "model": "m",
        "finish_reason": "length",
        "usage": {"input_tokens": 1_000_000, "output_tokens": 0},
        "cost_usd": 3.0,
    }
    found = read_reply_file(json.dumps(content).encode())
    reply = found.reply(prices=None, model="subject", latency_s=1.5)
    assert (reply.reasoning, reply.model, reply.ended) == ("r", "m", "output_limit")
    assert (reply.cost_usd, reply.cost_source) == (3.0, "provider")
    assert found.reply(prices=Prices(input=2, output=1), model="subject", latency_s=1.5).cost_usd == 2.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"expected a reply in JSON, found: Invalid JSON"),
        (b"{}", r"found: text: Field required"),
        (b'{"text": 5}', r"found: text: "),
        (b'{"text": "a", "txet": "b"}', r"found: txet: Extra inputs"),
        (b'{"text": "a", "usage": {"input_tokens": "9"}}', r"found: usage\.input_tokens: "),
        (b'{"text": "a", "prompt_sha256": "x"}', r"found: prompt_sha256: "),
        (b"\xff", r"expected a reply in JSON"),
        (b"[]", r"expected a reply in JSON"),
        (b"[" * 100_000, r"expected a reply in JSON, found: Invalid JSON"),
        (b'{"text": "a", "cost_usd": 1%b}' % (b"0" * 9000), r"expected a reply in JSON, found: Invalid JSON"),
        (b'{"text": "a", "\\ud800": 1}', r"found: Input should be a valid string"),
    ],
)
def test_a_wrong_reply_says_where(content, message):
    with pytest.raises(ValueError, match=message):
        read_reply_file(content)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("Said.\n\n```cuda\nint a;\nint b;\n```", "int a;\nint b;\n"),
        ("```cuda\nint a;\n```\n\n", "int a;\n"),
        ("```cuda\nfirst\n```\nand\n```cuda\nlast\n```\n", "last\n"),
        ("```cuda\nint a;\n```\nmore words", None),
        ("```cpp\nint a;\n```", None),
        ("```cuda\nunclosed", None),
        ("no block", None),
    ],
)
def test_the_kernel_that_an_answer_ends_with(text, kernel):
    assert previous_kernel(answer(text)) == kernel


def test_a_first_turn_has_no_kernel():
    assert previous_kernel([SYSTEM, USER]) is None


@given(st.text())
def test_any_source_comes_back(source):
    """Unless it holds a fence itself; a line end at its end is not told apart."""
    fenced = f"```cuda\n{source.rstrip()}\n```"
    if "```" not in source:
        found = previous_kernel(answer(f"words\n{fenced}"))
        assert found is not None
        assert found.rstrip() == source.rstrip()


def test_a_reader_sees_every_message_whole():
    text = conversation_text(answer("said"))
    assert "# Message 1 of 4: system\n\nYou write kernels.\n" in text
    assert "# Message 3 of 4: assistant\n\nsaid\n" in text
    assert USER.content in text


@pytest.mark.parametrize("label", ["claude-gemm-h100-v0-t0-turn3", "../../etc/passwd", "a b", "x" * 300, ""])
def test_a_label_names_one_file(label):
    name = file_name(label)
    assert "/" not in name
    assert 0 < len(name) <= 200
    assert not name.startswith(".")


def test_any_text_becomes_json():
    assert json.loads(to_json({"a": "ü\ud800"}).decode("utf-8", "surrogatepass")) == {"a": "ü\ud800"}


def test_what_cannot_be_is_not_told():
    content = b'{"text": "t", "usage": {"input_tokens": -5, "output_tokens": 1%b}, "cost_usd": -1.0}' % (b"0" * 400)
    found = read_reply_file(content).reply(prices=None, model="subject", latency_s=1.5)
    assert (found.usage, found.cost_usd, found.cost_source) == (Usage(), None, "unknown")


def test_half_a_surrogate_pair_loses_no_reply():
    content = b'{"text": "a\\ud800", "reasoning": "\\ud800", "model": "\\ud800", "finish_reason": "\\ud800"}'
    found = read_reply_file(content).reply(prices=None, model="subject", latency_s=1.5)
    assert (found.text, found.reasoning, found.model, found.finish_reason) == ("a\ufffd", "\ufffd", "\ufffd", "\ufffd")
