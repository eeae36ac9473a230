"""Clusters that are not there, and one whose client server fails."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.ray.address import Address
from ptxbench.profiler.ray.cluster import CLIENT_ATTEMPTS
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


def test_an_address_without_a_port_says_what_was_expected(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_ADDRESS", "head")
    with pytest.raises(InfrastructureError, match="at head, found: ValueError: expected HOST:PORT, found 'head'"):
        RayProfiler(Address(None, "replay"), root=tmp_path).health()


@contextmanager
def refusing_client_server() -> Iterator[tuple[str, list[str]]]:
    """Ray's own protocol, with the answer that a head gives whose process for the client crashed; who asked."""
    grpc = pytest.importorskip("grpc", reason="needs grpc for Ray's client: pip install 'ptxbench[ray]'")
    from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc

    asked: list[str] = []

    class Refusing(
        ray_client_pb2_grpc.RayletDriverServicer,  # type: ignore[misc]
        ray_client_pb2_grpc.RayletDataStreamerServicer,  # type: ignore[misc]
    ):
        def ClusterInfo(self, request, context):  # noqa: N802 - the protocol's name
            return ray_client_pb2.ClusterInfoResponse(json="{}")

        def Datapath(self, requests, context):  # noqa: N802
            asked.append(dict(context.invocation_metadata())["client_id"])
            first = next(requests)
            refusal = ray_client_pb2.InitResponse(ok=False, msg="Traceback:\n  ...\nRuntimeError: server failed\n")
            yield ray_client_pb2.DataResponse(req_id=first.req_id, init=refusal)
            for _ in requests:  # until the client goes
                pass

    server = grpc.server(ThreadPoolExecutor(8))
    refusing = Refusing()
    ray_client_pb2_grpc.add_RayletDriverServicer_to_server(refusing, server)
    ray_client_pb2_grpc.add_RayletDataStreamerServicer_to_server(refusing, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"ray://127.0.0.1:{port}", asked
    server.stop(None).wait()


def test_a_client_server_that_fails_is_asked_again_and_leaves_nothing_of_it_behind(tmp_path):
    hook = pytest.importorskip("ray._private.client_mode_hook")
    with refusing_client_server() as (url, asked):
        profiler = RayProfiler(Address(url, "replay"), root=tmp_path)
        with pytest.raises(InfrastructureError, match=f"expected a Ray cluster at {url}, found: .*server failed"):
            profiler.health()
    assert len(set(asked)) == CLIENT_ATTEMPTS
    # Else Ray takes every later call of this process to the server that failed, those of another cluster too.
    assert not hook.client_mode_should_convert()
