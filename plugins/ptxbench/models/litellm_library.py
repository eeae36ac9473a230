"""The litellm package: imported late, told to keep quiet, to fetch nothing and to change nothing that we send."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import threading
from typing import Any

from ptxbench.errors import InputError
from ptxbench.models.event_loop import EventLoop

MALICIOUS = frozenset({"1.82.7", "1.82.8"})
"""Releases on PyPI that were not the authors': they stole credentials when Python started."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch its price map when imported
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",  # else a .env file in the current folder would set variables
    "LITELLM_DISABLE_BUG_REPORT_LINK": "true",
}

_lock = threading.Lock()
_shared: list[EventLoop] = []
_users = 0


def check_installed(model: str) -> None:
    """Raises InputError where litellm is missing, or is one of the malicious releases. Imports nothing."""
    try:
        version = importlib.metadata.version("litellm")
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"model {model}: expected the package litellm, found none; pip install 'ptxbench[llm]'"
        ) from None
    if version in MALICIOUS:
        raise InputError(
            f"model {model}: expected a genuine release of litellm, found {version}, which steals credentials. "
            "Uninstall it, replace every key that this machine holds, then pip install 'ptxbench[llm]'."
        )


def library() -> Any:  # noqa: ANN401 - litellm has no types that hold
    """The module. The first call takes some seconds."""
    with _lock:
        os.environ.update(_ENVIRONMENT)
        import litellm

        litellm.telemetry = False
        litellm.drop_params = False
        litellm.modify_params = False
        litellm.suppress_debug_info = True
        litellm.num_retries = 0
        litellm.disable_aiohttp_transport = True  # the same HTTP client as our own: its proxies, its errors
        litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # a kernel may well repeat a piece
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        from ptxbench.models.litellm_guard import hold_all

        hold_all(litellm)
        return litellm


def acquire_loop() -> EventLoop:
    """The event loop of all litellm calls: litellm keeps its connections per loop, and closes all of them at once."""
    global _users
    with _lock:
        if not _shared:
            _shared.append(EventLoop())
        _users += 1
        return _shared[0]


def release_loop() -> None:
    """The caller of ``acquire_loop`` needs it no more; with the last one go the connections."""
    global _users
    with _lock:
        _users -= 1
        last = _shared.pop() if _users == 0 else None
    if last is not None:
        last.close(_close_connections)


async def _close_connections() -> None:
    litellm = library()
    close = getattr(litellm, "close_litellm_async_clients", None)
    if close is not None:
        await close()
    await litellm.aclient_session.aclose()
