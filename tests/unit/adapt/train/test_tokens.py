"""What a record is in tokens: the prompt as the model will meet it, and the supervised answer with its end mark."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.adapt.train.conversations import Conversation
from ptxbench.adapt.train.tokens import UNSUPERVISED, encode, encode_all, load_tokenizer
from ptxbench.errors import InputError
from tests.support.small_model import TEMPLATE, small_tokenizer

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1, max_size=40).filter(str.strip)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def conversation(*texts: str) -> Conversation:
    roles = ("user", "assistant") * (len(texts) // 2)
    return Conversation("one", tuple({"role": role, "content": text} for role, text in zip(roles, texts, strict=True)))


def prompt_of(tokenizer, found) -> str:
    return str(tokenizer.decode([one for one, label in zip(found.input_ids, found.labels, strict=True) if label < 0]))


def answer_of(tokenizer, found) -> str:
    return str(tokenizer.decode([label for label in found.labels if label >= 0]))


def test_the_last_answer_with_its_end_mark_is_supervised(tokenizer) -> None:
    found = encode(tokenizer, conversation("write", "wrong", "it fails", "<think>\nso\n</think>\n\nright"))
    assert answer_of(tokenizer, found) == "<think>\nso\n</think>\n\nright<|im_end|>"
    assert prompt_of(tokenizer, found) == (
        "<|im_start|>user\nwrite<|im_end|>\n<|im_start|>assistant\nwrong<|im_end|>\n"
        "<|im_start|>user\nit fails<|im_end|>\n<|im_start|>assistant\n"
    )
    assert found.supervised == sum(label != UNSUPERVISED for label in found.labels)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=2, max_size=6).filter(lambda texts: len(texts) % 2 == 0))
def test_the_prompt_has_the_tokens_that_a_server_would_give_it(tokenizer, texts) -> None:
    """Whatever the texts are: no token reaches over the place where the answer begins."""
    said = conversation(*texts)
    found = encode(tokenizer, said)
    asked = tokenizer.apply_chat_template(list(said.messages[:-1]), tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(asked, add_special_tokens=False)["input_ids"]
    assert found.input_ids[: len(prompt)] == prompt
    assert found.labels == [UNSUPERVISED] * len(prompt) + found.input_ids[len(prompt) :]
    assert answer_of(tokenizer, found) == f"{texts[-1]}<|im_end|>"


def test_longer_records_are_dropped_and_counted_and_none_is_cut(tokenizer) -> None:
    short, long = conversation("a", "b"), conversation("word " * 50, "b")._replace(name="long")
    size = len(encode(tokenizer, long).input_ids)
    found = encode_all(tokenizer, [short, long], size)
    assert [one.name for one in found.kept] == ["one", "long"]
    found = encode_all(tokenizer, [short, long], size - 1)
    assert [one.name for one in found.kept] == ["one"]
    assert found.dropped == (("long", size),)
    assert found.tokens == len(encode(tokenizer, short).input_ids)
    with pytest.raises(InputError, match="the shortest has"):
        encode_all(tokenizer, [short, long], 3)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (TEMPLATE.replace("<|im_end|>\n", "\n"), "marks the end of an answer"),
        (
            TEMPLATE.replace("<|im_start|>assistant\n{% endif", "<|im_start|>assistant\n<think>{% endif"),
            "begins a conv",
        ),
        ("{{ raise_exception('no system message') }}", "no system message"),
    ],
)
def test_a_template_that_cannot_say_it_is_refused(tokenizer, template, told) -> None:
    before, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        with pytest.raises(InputError, match=told):
            encode(tokenizer, conversation("write", "right"))
    finally:
        tokenizer.chat_template = before


def test_a_base_without_tokenizer_or_template_is_refused(tokenizer, tmp_path) -> None:
    with pytest.raises(InputError, match="--base"):
        load_tokenizer(str(tmp_path), None)
    bare = small_tokenizer(tmp_path / "base")
    bare.chat_template = None
    bare.save_pretrained(tmp_path / "base")
    with pytest.raises(InputError, match="--chat-template"):
        load_tokenizer(str(tmp_path / "base"), None)
    (tmp_path / "template").write_text(TEMPLATE)
    assert load_tokenizer(str(tmp_path / "base"), tmp_path / "template").chat_template == TEMPLATE
