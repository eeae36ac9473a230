"""A toolchain that remembers what it built last: agents have one kernel evaluated, profiled and sanitized in a row."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Arch, Built, Limits, Toolchain, Tools
from ptxbench.toolchain.cache import BuildCache

MOST = 64
"""Builds that are remembered; each is some 50 kB of records. The cache on disk has all of them."""


class RecentBuilds(Toolchain):
    """``Toolchain`` without a look at the disk for the last builds that succeeded."""

    def __init__(self, tools: Tools, cache: BuildCache, limits: Limits | None = None, *, screened: bool = True) -> None:
        super().__init__(tools, cache, limits, screened=screened)
        self._recent: OrderedDict[tuple[str, str, str], Built] = OrderedDict()
        self._guard = threading.Lock()

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """As ``Toolchain.build``."""
        key = (candidate.sha256, arch.name, arch.gencode)
        with self._guard:
            built = self._recent.get(key)
            if built is not None and built.so_path is not None and built.so_path.exists():
                self._recent.move_to_end(key)
                return built
        built = super().build(candidate, arch)
        if built.build.status is BuildStatus.OK:
            with self._guard:
                self._recent[key] = built
                while len(self._recent) > MOST:
                    self._recent.popitem(last=False)
        return built
