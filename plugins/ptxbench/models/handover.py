"""Conversations and replies as files, for those who are not asked over a network: agents, people, other machines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, ValidationError

from ptxbench.models.base import slug
from ptxbench.models.entry import Prices
from ptxbench.models.openai_answer import ended
from ptxbench.models.pricing import cost
from ptxbench.records import Message, Record, Reply, Sha256, Usage
from ptxbench.records.conversation import Dollars, Words

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_LAST_KERNEL = re.compile(r"^```cuda[^\S\n]*\n((?:(?!^```).*\n)*)^```[^\S\n]*$\s*\Z", re.MULTILINE)


class ReplyFile(Record):
    """A reply that somebody wrote as JSON. Only ``text`` is needed."""

    schema_version: Annotated[int, Field(ge=1, le=1)] = 1
    text: Words
    reasoning: Words = ""
    model: Words = ""
    """What answered."""
    finish_reason: Words = "stop"
    """``length``: cut off at an output limit. ``context_exhausted``: the conversation no longer fits what answers."""
    usage: Usage = Usage()
    cost_usd: Dollars = None
    prompt_sha256: Sha256 | None = None
    """Of the request that it answers."""

    def reply(self, *, prices: Prices | None, model: str, latency_s: float) -> Reply:
        """The reply as records keep it; ``model`` stands in where the file names none."""
        price = cost(prices, self.usage, stated=self.cost_usd)
        return Reply(
            text=self.text,
            reasoning=self.reasoning,
            ended=ended(self.finish_reason),
            finish_reason=self.finish_reason,
            usage=self.usage,
            cost_usd=price.usd,
            cost_source=price.source,
            latency_s=latency_s,
            model=self.model or model,
        )


def read_reply_file(content: bytes) -> ReplyFile:
    """A reply in JSON. Raises ValueError that says in one line what was expected and found."""
    try:
        # Not by pydantic, which refuses a whole reply for half a surrogate pair in it.
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a reply in JSON, found: Invalid JSON: {error}") from None
    try:
        return ReplyFile.model_validate(data)
    except ValidationError as failure:
        problem = failure.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"expected a reply in JSON, found: {place + ': ' if place else ''}{problem['msg']}") from None


def file_name(label: str) -> str:
    """``label`` where it can name a file, else a slug of it."""
    return label if _FILE_NAME.fullmatch(label) else slug(label)


def conversation_json(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as every API has them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def conversation_text(messages: Sequence[Message]) -> str:
    """A conversation for a reader: each message whole, under a heading."""
    count = len(messages)
    parts = [
        f"# Message {number} of {count}: {message.role}\n\n{message.content.rstrip()}\n"
        for number, message in enumerate(messages, start=1)
    ]
    return "\n".join(parts)


def previous_kernel(messages: Sequence[Message]) -> str | None:
    """The kernel with which the last answer ends, as a ``cuda`` block; None where it does not end with one."""
    last = next((message.content for message in reversed(messages) if message.role == "assistant"), "")
    found = _LAST_KERNEL.search(last)
    return found.group(1) if found else None


def to_json(value: object) -> bytes:
    """Readable JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
