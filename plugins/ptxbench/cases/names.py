"""Choosing by name, with an answer for a name that is not there."""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.errors import InputError
from ptxbench.trace.faults import did_you_mean


def expect_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Check that ``name`` is one of ``known``.

    Raises:
        InputError: it is not; the message lists what is known and the closest match.
    """
    if name not in known:
        raise InputError(
            f"unknown {kind}: expected one of {', '.join(known) or '(none exist)'}; "
            f"found {name!r}.{did_you_mean(name, known)}"
        )
