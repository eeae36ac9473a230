"""What is tried again, and when: a busy service, one that restarts, and connections that break."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ptxbench.arguments import NO_TOKEN, TOKEN_VARIABLE, is_token
from ptxbench.errors import PtxBenchError

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 10.0
DEFAULT_PATIENCE_S = 120.0
"""A service that restarts is back in seconds; one that is busy says when to come again."""
ANSWER_TIMEOUT_S = 30.0
_PASSING = frozenset({429, 502, 503, 504})


class ServiceError(PtxBenchError):
    """The service refused, or could not be reached. ``status`` is HTTP's; None where there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Settings(NamedTuple):
    """How a client talks."""

    url: str
    token: str | None
    patience_s: float

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        token = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return {"content-type": "application/json", **token}


def settings_of(url: str, token: str | None, patience_s: float) -> Settings:
    """``token``: None takes that of the environment.

    Raises ServiceError for what is no URL of HTTP, no token, or no time.
    """
    if not _is_address(url):
        raise ServiceError(f"expected the URL of a service such as http://127.0.0.1:8600, found {url!r}")
    if math.isnan(patience_s):
        raise ServiceError(f"patience_s: expected seconds, found {patience_s!r}")
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not is_token(token):
        raise ServiceError(f"{TOKEN_VARIABLE}: {NO_TOKEN}, found {len(token)} characters")
    return Settings(url.rstrip("/"), token, patience_s)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return known and not parts.query and not parts.fragment and url.isprintable() and " " not in url


class Attempts:
    """The attempts at one call: how long to wait before the next, until ``patience_s`` seconds are over.

    Waits double and are drawn at random from their upper half, so that clients that failed together do not come back
    together; a service that says ``Retry-After`` is taken at its word.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wait_s = FIRST_WAIT_S
        self._deadline = time.monotonic() + settings.patience_s

    def after_answer(self, status: int, headers: Mapping[str, str], text: str) -> float:
        """Seconds to wait after an answer with an error. Raises ServiceError where another attempt has no sense."""
        error = ServiceError(f"{self._settings.url}: HTTP {status}: {_detail(text)}", status)
        if status not in _PASSING:
            raise error
        return self._next(error, _seconds(headers.get("retry-after")))

    def after_failure(self, failure: Exception) -> float:
        """Seconds to wait after a connection that failed. Raises ServiceError once patience is over."""
        what = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        message = f"{self._settings.url}: expected a PTXBench service there, found {what}; start `ptxbench serve`"
        return self._next(ServiceError(message), None)

    def _next(self, error: ServiceError, asked_s: float | None) -> float:
        wait_s = random.uniform(self._wait_s / 2, self._wait_s)
        if asked_s is not None:
            wait_s += asked_s
        self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
        if time.monotonic() + wait_s > self._deadline:
            raise error
        return wait_s


def _seconds(text: str | None) -> float | None:
    try:
        return min(3600.0, max(0.0, float(text))) if text else None
    except ValueError:
        return None


def _detail(text: str) -> str:
    """The ``detail`` of an error's body, or its beginning."""
    import json

    try:
        document: Any = json.loads(text)
    except ValueError:
        return text[:500] or "without a word"
    detail = document.get("detail") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) else str(detail or document)[:2000]
