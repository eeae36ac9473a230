"""Keys: read from the environment, and kept out of everything that is shown or stored."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable
from urllib.parse import quote

from ptxbench.errors import InputError
from ptxbench.models import credentials
from ptxbench.models.entry import ModelEntry

HIDDEN = "[hidden]"

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")
MAX_MESSAGE_CHARS = 700
"""Of an error message with a provider's words in it: some echo the whole request."""
_EXAMINED_CHARS = 20_000
_MIN_CHARS = 8
"""Shorter values of an environment variable are words rather than keys: hiding them would spoil the text."""

_QUERY = re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s?#'\"<>]*)\?[^\s'\"<>]*")


class Secret:
    """A key that does not show itself by accident."""

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"


def read_key(entry: ModelEntry) -> Secret | None:
    """The key of an entry; None where it names no variable.

    Raises InputError that names the variable, where that is unset, empty, or cannot be sent in a header.
    """
    name = entry.api_key_env
    if name is None:
        return None
    value = os.environ.get(name, "").strip()
    if not value:
        raise missing_key(entry.name, name)
    if not (value.isascii() and value.isprintable()):
        raise InputError(
            f"model {entry.name}: expected a key of printable ASCII characters in the environment variable {name}; "
            "found others. Copy the key again."
        )
    return Secret(value)


def missing_key(model: str, *variables: str) -> InputError:
    """The error for a model whose key is not in the environment."""
    names = " or ".join(variables)
    return InputError(
        f"model {model}: expected its API key in the environment variable {names}; found none. "
        f"Set it before the run, for example: export {variables[0]}=..."
    )


class Scrubber:
    """Removes credentials from text that comes from outside: known ones by value, others by where they stand."""

    def __init__(self, *secrets: Secret | None) -> None:
        sent = {secret.reveal() for secret in secrets if secret is not None}
        known = sent | {secret.reveal() for secret in environment_secrets()}
        self._sent = _any_of(value for value in sent if len(value) >= _MIN_CHARS)
        self._values = _any_of(form for value in known for form in _forms(value))

    def __call__(self, text: str) -> str:
        """``text`` without credentials."""
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        text = credentials.HEADER.sub(rf"\1\2{HIDDEN}", text)
        text = credentials.BEARER.sub(rf"\1 {HIDDEN}", text)
        text = credentials.PROVIDER_KEY.sub(HIDDEN, text)
        text = credentials.USERINFO.sub(rf"\1{HIDDEN}@", text)
        return _QUERY.sub(rf"\1?{HIDDEN}", text)

    def answer(self, text: str) -> str:
        """``text`` of a model's answer without the secrets that were sent to it. Nothing else of it is touched."""
        return self._sent.sub(HIDDEN, text) if self._sent is not None else text

    def knows_one_in(self, text: str) -> bool:
        """Whether ``text`` holds a known credential, in any form."""
        return self._values is not None and self._values.search(text) is not None

    def bounded(self, text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
        """The start of ``text`` without credentials. Cut after they are found: half a key would not be."""
        clean = self(text[:_EXAMINED_CHARS])
        return clean if len(clean) <= limit else f"{clean[:limit]}..."

    def end(self, text: str, limit: int) -> str:
        """The end of ``text`` without credentials, cut after they are found."""
        return self(text)[-limit:]

    def __repr__(self) -> str:
        return "Scrubber()"


def environment_secrets() -> tuple[Secret, ...]:
    """Values of the environment variables that are named like credentials."""
    return tuple(
        Secret(value.strip())
        for name, value in os.environ.items()
        if _SECRET_NAME.search(name.upper()) and len(value.strip()) >= _MIN_CHARS
    )


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(set(texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _forms(value: str) -> Iterable[str]:
    """How a text may hold a value."""
    return value, quote(value, safe=""), json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode()
