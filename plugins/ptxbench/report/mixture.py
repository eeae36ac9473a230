"""Whether the turns of a cell were asked for in one way. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

from ptxbench.records import Exchange, TurnRecord

SHOWN = 60
"""Characters of a value in a remark."""
NOT_SENT = "(not sent)"


def mixture_of(records: Iterable[TurnRecord]) -> tuple[str, ...]:
    """Return what differs between the calls of these turns, as ``what: one value / another``, sorted."""
    calls = [_flat(record.exchange) for record in records if record.exchange is not None]
    names = sorted({name for call in calls for name in call})
    found = []
    for name in names:
        values = list(dict.fromkeys(call.get(name, NOT_SENT) for call in calls))
        if len(values) > 1:
            found.append(f"{name}: {' / '.join(sorted(map(_short, values)))}")
    return tuple(found)


def _flat(exchange: Exchange) -> dict[str, str]:
    prompt = exchange.prompt
    texts = {
        "knowledge": prompt.level,
        "pack": f"{prompt.pack}, {prompt.pack_sha256[:12]}",
        "texts": f"version {prompt.template}",
    }
    return texts | {f"sent {name}": value for name, value in _leaves(exchange.sent)}


def _leaves(settings: Mapping[str, JsonValue], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", json.dumps(value)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
