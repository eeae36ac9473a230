"""The ways to reach a profiler. Each is opened as a user opens it: by what ``--profiler`` takes.

To add one: a function that yields a profiler, and a line in ``TRANSPORTS``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ptxbench.profiler import Profiler, open_profiler
from ptxbench.profiler.environment import import_path
from ptxbench.profiler.protocol import EVIDENCE_FOLDERS
from tests.conftest import ROOT
from tests.support.service import serving

EVIDENCE = tuple(ROOT / folder for folder in EVIDENCE_FOLDERS)


class Place(NamedTuple):
    """Where a transport may put what it needs."""

    folder: Path
    build_cache: Path

    @property
    def env(self) -> dict[str, str]:
        """For processes that build."""
        return os.environ | {"PTXBENCH_CACHE": str(self.build_cache), "PYTHONPATH": import_path()}


Opened = Callable[[Place], AbstractContextManager[Profiler]]


@contextmanager
def named(name: str) -> Iterator[Profiler]:
    """What ``--profiler NAME`` opens here."""
    with closing(open_profiler(name, root=ROOT, evidence_roots=EVIDENCE)) as profiler:
        yield profiler


def of_this_process(name: str) -> Opened:
    """A profiler of this process."""
    return lambda place: named(name)


def over_http(behind: str) -> Opened:
    """A service with a profiler behind it, and its URL."""

    @contextmanager
    def opened(place: Place) -> Iterator[Profiler]:
        with serving(place.folder, "--profiler", behind, env=place.env) as service, named(service.url) as profiler:
            yield profiler

    return opened


def over_ray(behind: str) -> Opened:
    """A Ray cluster on this machine, started by the profiler."""

    @contextmanager
    def opened(place: Place) -> Iterator[Profiler]:
        pytest.importorskip("ray", reason="needs Ray: pip install 'ptxbench[ray]'")
        with pytest.MonkeyPatch.context() as patch:
            for name in ("PTXBENCH_CACHE", "PYTHONPATH"):
                patch.setenv(name, place.env[name])
            # Not whatever runs here: a cluster of this test's own.
            patch.setenv("RAY_ADDRESS", "local")
            with named(f"ray?profiler={behind}") as profiler:
                yield profiler

    return opened


TRANSPORTS: dict[str, Opened] = {
    "replay": of_this_process("replay"),
    "http-replay": over_http("replay"),
    "ray-replay": over_ray("replay"),
    "local": of_this_process("local"),
    "http-local": over_http("local"),
    "ray-local": over_ray("local"),
}
MEASURING = frozenset({"local", "http-local", "ray-local"})
"""Those that need a GPU."""


def parameters() -> list[object]:
    """The transports as parameters of a fixture."""
    return [pytest.param(name, marks=[pytest.mark.gpu] if name in MEASURING else [], id=name) for name in TRANSPORTS]
