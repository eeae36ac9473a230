"""Code in the candidate's process that is not its own: the run-time half of the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ptxbench.records import Evidence, LoadedCode
from ptxbench.verdict.quoting import quote
from ptxbench.verdict.rules import Rule

ALLOWED_ENTRY_POINT = re.compile(
    r"cuTensorMap\w+|cuLaunch\w+|cuFunc[GS]et\w+|cuKernel[GS]et\w+|cuOccupancy\w+|cuStream(?!BeginCapture)\w+|cuEvent\w+"
    r"|cuCtxGet\w+|cuDeviceGet\w+|cuGetError\w+|cuDriverGetVersion|cuPointerGetAttribute\w*"
)
"""Driver functions that may be obtained at run time: those that encode tensor maps, and those that a launch needs. None
of them brings in code or reaches another process."""
MOST_MODULES = 64
"""As many as a sandbox tells of. A candidate has one or two; whoever loads this many hides those behind them."""
MOST_ENTRY_POINTS = 1_000
"""The same of names that were looked up."""
_SHOWN = 3


class Foreign(NamedTuple):
    """The rule that loaded code breaks."""

    rule: Rule
    message: str


def find_foreign(evidence: Evidence) -> Foreign | None:
    """Return what was loaded beside the candidate's own code, None where nothing was or nothing is known."""
    loaded = evidence.run.loaded
    if loaded is None:
        return None
    return _modules(loaded) or _libraries(loaded) or _entry_points(loaded)


def _modules(loaded: LoadedCode) -> Foreign | None:
    if len(loaded.modules) >= MOST_MODULES:
        message = f"loaded {MOST_MODULES} modules of device code or more; no more are told of, so others may be foreign"
        return Foreign(Rule.SCREEN_FOREIGN_MODULE, message)
    # Where the driver tells of the object's own image as it is, it finalizes none before it tells.
    exact = any(module.from_candidate and module.code_sha256 is not None for module in loaded.modules)
    own = {"empty"} if exact else {"empty", "layout"}
    foreign = [module for module in loaded.modules if not module.from_candidate and module.matched_by not in own]
    if not foreign:
        return None
    names = _list([name for module in foreign for name in module.kernels]) or "no function that could be read"
    message = f"loaded device code that is none of the built object ({_count(foreign, 'module')}): {names}"
    return Foreign(Rule.SCREEN_FOREIGN_MODULE, message)


def _libraries(loaded: LoadedCode) -> Foreign | None:
    if loaded.hidden:
        message = "kept the system from telling what is mapped in its process"
        return Foreign(Rule.SCREEN_FOREIGN_LIBRARY, message)
    foreign = [library.path for library in loaded.libraries if not library.allowed]
    if not foreign:
        return None
    return Foreign(
        Rule.SCREEN_FOREIGN_LIBRARY, f"loaded code at run time from {_count(foreign, 'file')}: {_list(foreign)}"
    )


def _entry_points(loaded: LoadedCode) -> Foreign | None:
    foreign = [name for name in loaded.entry_points if not ALLOWED_ENTRY_POINT.fullmatch(name)]
    if not foreign and len(loaded.entry_points) >= MOST_ENTRY_POINTS:
        message = f"looked up {MOST_ENTRY_POINTS} driver functions at run time or more; no more are told of"
        return Foreign(Rule.SCREEN_DRIVER_ENTRY_POINT, message)
    if not foreign:
        return None
    return Foreign(Rule.SCREEN_DRIVER_ENTRY_POINT, f"looked up driver functions at run time: {_list(foreign)}")


def _count(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}" + ("" if len(found) == 1 else "s")


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(quote, names[:_SHOWN])) + more
