"""What the tests of the clients share."""

from pathlib import Path
from typing import Any

from ptxbench.models.client import ModelClient, ModelError, Request
from ptxbench.models.entry import ModelEntry
from ptxbench.models.registry import open_client
from ptxbench.records import Message

KEY = "sk-proj-Zm9vYmFy-0123456789"
"""Looks like a real one, so that leaks show."""
SYSTEM = Message(role="system", content="You write kernels.")
USER = Message(role="user", content='Write C = A B^T.\u2028Ünïcode, "quotes" and `code`.')


def entry(provider: str = "openai", **fields: Any) -> ModelEntry:
    return ModelEntry(name="subject", provider=provider, **fields)  # type: ignore[arg-type]


def openai_entry(url: str, **fields: Any) -> ModelEntry:
    return entry("openai", **({"model": "local/model", "api_base": url} | fields))


def client(of: ModelEntry, folder: Path | None = None) -> ModelClient:
    return open_client(of, run_folder=folder or Path("unused"))


def request(*more: Message, label: str = "m-case-h100-v0-t0-turn0", **fields: Any) -> Request:
    return Request((SYSTEM, USER, *more), label, **fields)


def refusal(of: ModelClient, what: Request | None = None) -> ModelError:
    """The error of one call."""
    try:
        reply = of.complete(what or request())
    except ModelError as error:
        return error
    raise AssertionError(f"expected a ModelError, found {reply}")
