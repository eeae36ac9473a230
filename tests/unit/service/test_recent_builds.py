from pathlib import Path
from typing import Any

import pytest

from ptxbench.records import BuildStatus, Candidate
from ptxbench.service import recent_builds as module
from ptxbench.service.recent_builds import RecentBuilds
from ptxbench.toolchain import Built, Toolchain
from tests.unit.factories import make_build, suite_case

ARCH = suite_case().arch


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds that are remembered, and the sources of those that were looked up on disk."""
    looked_up: list[str] = []

    def build(self: Toolchain, candidate: Candidate, arch: Any) -> Built:
        looked_up.append(candidate.source)
        if candidate.source == "broken":
            return Built(make_build(candidate_sha256=candidate.sha256, status=BuildStatus.COMPILE_ERROR), None)
        so = tmp_path / f"{candidate.sha256}.so"
        so.touch()
        return Built(make_build(candidate_sha256=candidate.sha256), so, candidate)

    monkeypatch.setattr(Toolchain, "build", build)
    monkeypatch.setattr(module, "MOST", 2)
    nothing: Any = None
    return RecentBuilds(nothing, nothing), looked_up


def test_last_builds_are_remembered_as_long_as_their_objects_are_there(builds) -> None:
    remembered, looked_up = builds
    first = remembered.build(Candidate(source="a"), ARCH)
    assert remembered.build(Candidate(source="a"), ARCH) == first
    assert looked_up == ["a"]
    first.so_path.unlink()  # the cache on disk is bounded too
    remembered.build(Candidate(source="a"), ARCH)
    for source in ("broken", "broken", "b", "c", "a"):
        remembered.build(Candidate(source=source), ARCH)
    assert looked_up == ["a", "a", "broken", "broken", "b", "c", "a"]
