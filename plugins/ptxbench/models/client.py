"""The seam between the agent and whatever completes a conversation: an API, a server, a program, a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from ptxbench.plain import whole
from ptxbench.records import Message, Reply

_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, with which a provider's words could speak to the terminal, and those that turn text around."""


class Request(NamedTuple):
    """One call."""

    messages: tuple[Message, ...]
    """The whole conversation so far; the last message is the user's."""
    label: str
    """The turn's key as text: unique in a run, fit for a file name."""
    cancelled: Callable[[], bool] = lambda: False
    """Whether the caller has given up; clients that wait long look at it every second or oftener."""


class ModelClient(Protocol):
    """Completes conversations. Safe for several threads. One call is one attempt: retrying is the caller's."""

    def settings(self) -> Mapping[str, JsonValue]:
        """What every request carries beside its messages: provider, model, decoding, limits. Never a credential."""

    def complete(self, request: Request) -> Reply:
        """The model's answer. Raises ModelError."""

    def close(self) -> None:
        """Let go of connections and processes. Idempotent."""


class ModelError(Exception):
    """A call brought no answer. ``str()`` is for the user and holds no credential.

    ``kind`` is one of TRANSIENT, LASTING or REFUSED, or ``context_exhausted`` or ``cancelled``. ``message`` may hold
    anything; what a terminal or a file would not take as text is replaced.
    """

    def __init__(self, kind: str, message: str, retry_after_s: float | None = None) -> None:
        assert kind in TRANSIENT | LASTING | REFUSED | {CONTEXT_EXHAUSTED, CANCELLED}, kind
        super().__init__(_NOT_SHOWN.sub(_harmless, whole(message)))
        self.kind = kind
        self.retry_after_s = retry_after_s
        """What the provider asked to wait, in seconds."""


def _harmless(found: re.Match[str]) -> str:
    return " " if found[0].isspace() else "\ufffd"


TRANSIENT = frozenset({"rate_limited", "overloaded", "server_error", "connection", "timeout", "malformed_response"})
"""Worth another attempt after a pause. A stream that broke off is ``connection``."""

LASTING = frozenset({"authentication", "not_found", "quota", "unavailable"})
"""Another attempt would fail the same way: the user has to mend something first."""

REFUSED = frozenset({"bad_request"})
"""This request would fail the same way again; another conversation's may not."""

CONTEXT_EXHAUSTED = "context_exhausted"
"""The conversation no longer fits the model. The trajectory ends here, which is nobody's fault."""

CANCELLED = "cancelled"
