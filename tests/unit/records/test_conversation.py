"""The identity of a prompt."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Message, prompt_sha256

MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=st.text(max_size=20)), max_size=9
)


def from_scratch(messages: list[Message]) -> str:
    whole = json.dumps([[message.role, message.content] for message in messages])
    return hashlib.sha256(whole.encode()).hexdigest()


@given(MESSAGES, st.lists(st.integers(0, 9), max_size=6))
def test_a_conversation_has_the_hash_of_its_json_however_it_grew(messages: list[Message], lengths: list[int]) -> None:
    for length in lengths:
        assert prompt_sha256(messages[:length]) == from_scratch(messages[:length])
    assert prompt_sha256(tuple(messages)) == from_scratch(messages)


def test_threads_that_hash_many_conversations_disturb_none() -> None:
    talks = [[Message(role="user", content=f"{talk} {turn}") for turn in range(40)] for talk in range(8)]

    def hashes(talk: list[Message]) -> list[str]:
        return [prompt_sha256(talk[:length]) for length in range(len(talk))]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(hashes, talks * 4))
    assert found == [[from_scratch(talk[:length]) for length in range(len(talk))] for talk in talks] * 4
