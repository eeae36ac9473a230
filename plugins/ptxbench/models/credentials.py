"""What credentials look like: by the shape that their providers give them, and by what stands before them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-goog-api-key|api_key|access_token)"
    r"(['\"]?\s*[:=]\s*['\"]?)((?:bearer|basic|token)\s+)?[^\s'\",;)}\]]+"
)
BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}")
PROVIDER_KEY = re.compile(r"\b(sk|pk|rk|gsk|xai|hf|nvapi|AIza)[-_]?[A-Za-z0-9_*-]*[A-Za-z0-9*]{8,}")
"""Keys as their providers shape them: an error may quote a part of one, masked in the middle."""
USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]*@")

_WORDS = ("apikey", "authorization", "password", "secret", "accesskey", "privatekey", "credential", "authtoken")
_LAST_WORDS = (*_WORDS, "accesstoken", "passwd", "credentials", "secretkey")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANDOM = re.compile(r"(?=.*[0-9])[A-Za-z0-9]{20,}")
_OPTION = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9_-]*)(?:[=:]\s*(.*))?", re.DOTALL)


def names_credential(name: str) -> bool:
    """Whether a key of a document names a credential."""
    plain = _plain(name)
    return any(word in plain for word in _WORDS)


def secrets_in(value: JsonValue, loc: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where ``value`` holds keys that name a credential."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if names_credential(name):
                yield (*loc, name)
            yield from secrets_in(inner, (*loc, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secrets_in(inner, (*loc, index))


def is_variable_name(text: str) -> bool:
    """Whether ``text`` can name an environment variable, and is no key that somebody put there by mistake."""
    return bool(_VARIABLE.fullmatch(text)) and not PROVIDER_KEY.fullmatch(text) and not _RANDOM.fullmatch(text)


def credential_in(words: Sequence[str]) -> int | None:
    """Index of the first word of a command line that holds what looks like a credential; None where none does."""
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if _shows_one(word) or _is_option_with_one(word, following):
            return index
    return None


def _shows_one(word: str) -> bool:
    if PROVIDER_KEY.search(word) or BEARER.search(word) or USERINFO.search(word):
        return True
    # The value stands at the end of what matched; one from a variable is none.
    return any("$" not in found[0] for found in HEADER.finditer(word))


def _is_option_with_one(word: str, following: str) -> bool:
    """Whether ``word`` is ``--password=...``, ``API_KEY=...``, or ``--password`` before its value."""
    found = _OPTION.fullmatch(word)
    if found is None:
        return False
    name, value = _plain(found[1]), found[2]
    if name != "token" and not name.endswith(_LAST_WORDS):
        return False
    if value is None:
        value = following if word.startswith("-") and not following.startswith("-") else ""
    return bool(value) and not value.startswith("$")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
