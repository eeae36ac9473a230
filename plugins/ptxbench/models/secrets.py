"""Keys: read from the environment, and kept out of everything that is shown or stored."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable
from urllib.parse import quote

from ptxbench.errors import InputError
from ptxbench.models.entry import ModelEntry

HIDDEN = "[hidden]"

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")
MAX_MESSAGE_CHARS = 700
"""Of an error message with a provider's words in it: some echo the whole request."""
_EXAMINED_CHARS = 20_000
_MIN_CHARS = 8
"""Shorter values of an environment variable are words rather than keys: hiding them would spoil the text."""

_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-goog-api-key|api_key|access_token)"
    r"(['\"]?\s*[:=]\s*['\"]?)((?:bearer|basic|token)\s+)?[^\s'\",;)}\]]+"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}")
_PROVIDER_KEY = re.compile(r"\b(sk|pk|rk|gsk|xai|hf|nvapi|AIza)[-_]?[A-Za-z0-9_*-]*[A-Za-z0-9*]{8,}")
"""Keys as their providers shape them: an error may quote a part of one, masked in the middle."""
_USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]*@")
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
        values = {secret.reveal() for secret in secrets if secret is not None}
        values |= {
            value.strip()
            for name, value in os.environ.items()
            if _SECRET_NAME.search(name.upper()) and len(value.strip()) >= _MIN_CHARS
        }
        forms = {form for value in values for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __call__(self, text: str) -> str:
        """``text`` without credentials."""
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        text = _PROVIDER_KEY.sub(HIDDEN, text)
        text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
        return _QUERY.sub(rf"\1?{HIDDEN}", text)

    def bounded(self, text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
        """The start of ``text`` without credentials. Cut after they are found: half a key would not be."""
        clean = self(text[:_EXAMINED_CHARS])
        return clean if len(clean) <= limit else f"{clean[:limit]}..."

    def end(self, text: str, limit: int) -> str:
        """The end of ``text`` without credentials, cut after they are found."""
        return self(text)[-limit:]

    def __repr__(self) -> str:
        return "Scrubber()"


def _forms(value: str) -> Iterable[str]:
    """How a text may hold a value."""
    return value, quote(value, safe=""), json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode()
