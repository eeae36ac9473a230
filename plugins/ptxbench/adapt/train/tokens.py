"""From conversations to tokens and labels: which tokens a record has, and which of them are supervised."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.adapt.train.conversations import Conversation
from ptxbench.errors import InputError

UNSUPERVISED = -100
"""Label of a token that has no loss; what torch and transformers ignore."""


class Encoded(NamedTuple):
    """One record in tokens."""

    name: str
    input_ids: list[int]
    labels: list[int]
    """The token itself where it is supervised, else UNSUPERVISED."""

    @property
    def supervised(self) -> int:
        """Tokens with a loss."""
        return sum(label != UNSUPERVISED for label in self.labels)


class Dropped(NamedTuple):
    """A record that is too long."""

    name: str
    tokens: int


class EncodedSet(NamedTuple):
    """A dataset in tokens."""

    kept: tuple[Encoded, ...]
    dropped: tuple[Dropped, ...]

    @property
    def tokens(self) -> int:
        """Of all kept records."""
        return sum(len(one.input_ids) for one in self.kept)

    @property
    def supervised(self) -> int:
        """Tokens with a loss, of all kept records."""
        return sum(one.supervised for one in self.kept)


def load_tokenizer(base: str, template: Path | None) -> Any:  # noqa: ANN401 - transformers' own
    """The base model's tokenizer, with another chat template if one is given.

    Raises InputError where it cannot be loaded or has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        if template is not None:
            tokenizer.chat_template = template.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"--base {base}: expected a model of the Hugging Face hub or its folder, with a tokenizer, found: {error}; "
            "name another, or fetch it first"
        ) from error
    if not tokenizer.chat_template:
        raise InputError(f"--base {base}: expected a tokenizer with a chat template, found none; add --chat-template")
    return tokenizer


def encode(tokenizer: Any, conversation: Conversation) -> Encoded:  # noqa: ANN401 - transformers' own
    """Tokens of a conversation as the model meets them when it is asked: the prompt, up to where an answer begins, and
    then the answer, tokenized apart. The answer with its end mark is supervised, and nothing else.

    Raises InputError for a chat template with which that cannot be said.
    """
    prompt = _rendered(tokenizer, conversation, conversation.messages[:-1], asking=True)
    whole = _rendered(tokenizer, conversation, conversation.messages, asking=False)
    if not whole.startswith(prompt):
        raise InputError(
            f"{conversation.name}: expected a chat template that begins a conversation as it does the prompt for its "
            f"last message, found {_difference(prompt, whole)}; give another with --chat-template"
        )
    # What stands behind the end mark, a line end as a rule, is never generated.
    answer = whole[len(prompt) :].rstrip()
    if not answer or answer.endswith(conversation.messages[-1]["content"].rstrip()):
        raise InputError(
            f"{conversation.name}: expected a chat template that marks the end of an answer, found the answer's own "
            "end; a model trained on it would not learn to stop: give another with --chat-template"
        )
    before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    supervised = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return Encoded(conversation.name, [*before, *supervised], [UNSUPERVISED] * len(before) + supervised)


def encode_all(tokenizer: Any, conversations: Iterable[Conversation], max_tokens: int) -> EncodedSet:  # noqa: ANN401
    """Encode conversations in order and set those of more than ``max_tokens`` apart.

    Raises InputError where none is left.
    """
    kept, dropped = [], []
    for conversation in conversations:
        found = encode(tokenizer, conversation)
        if len(found.input_ids) > max_tokens:
            dropped.append(Dropped(found.name, len(found.input_ids)))
        else:
            kept.append(found)
    if not kept:
        shortest = min(one.tokens for one in dropped)
        raise InputError(
            f"expected records of at most {max_tokens:,} tokens, found none: the shortest has {shortest:,}; build the "
            "dataset with shorter rationales, or raise --max-tokens"
        )
    return EncodedSet(tuple(kept), tuple(dropped))


def _rendered(tokenizer: Any, conversation: Conversation, messages: Iterable[dict[str, str]], *, asking: bool) -> str:  # noqa: ANN401
    from jinja2.exceptions import TemplateError

    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=asking))
    except (TemplateError, TypeError, KeyError) as error:
        raise InputError(
            f"{conversation.name}: expected messages that the chat template takes, found: {error}; give another with "
            "--chat-template"
        ) from error


def _difference(prompt: str, whole: str) -> str:
    at = next((at for at, (one, other) in enumerate(zip(prompt, whole, strict=False)) if one != other), len(whole))
    return f"{prompt[at : at + 40]!r} against {whole[at : at + 40]!r}"
