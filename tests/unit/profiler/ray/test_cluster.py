"""Clusters that are not there."""

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.ray.address import Address
from ptxbench.profiler.ray.profiler import RayProfiler

pytest.importorskip("ray", reason="needs Ray: pip install 'ptxbench[ray]'")


@pytest.mark.parametrize("way", ["variable", "url"])
def test_a_cluster_that_is_not_there_is_a_fault_of_the_machinery_at_once(way, monkeypatch, tmp_path):
    place = "127.0.0.1:9" if way == "variable" else "ray://127.0.0.1:9"
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    profiler = RayProfiler(Address(place if way == "url" else None, "replay"), root=tmp_path)
    with pytest.raises(InfrastructureError, match=f"expected a Ray cluster at {place}, found:.*refused") as caught:
        profiler.health()
    assert caught.value.kind == "service_unavailable"
    profiler.close()
    with pytest.raises(InfrastructureError, match="closed"):
        profiler.health()
