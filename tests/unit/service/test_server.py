import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from ptxbench.cases import load_suite
from ptxbench.errors import InputError
from ptxbench.service import broker as broker_module
from ptxbench.service.app import create_app
from ptxbench.service.broker import Broker
from ptxbench.service.catalog import Catalog
from ptxbench.service.metrics import Metrics
from ptxbench.service.server import _listen, _Server
from ptxbench.service.settings import Settings
from ptxbench.service.store import Store
from tests.conftest import ROOT
from tests.support.service import serving
from tests.unit.service.test_broker import PlayedPeer


def test_an_address_that_another_took_while_this_one_started_is_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(broker_module, "Peer", PlayedPeer)
    first = _listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = _listen("127.0.0.1", port)  # nobody listens yet, so the system has nothing against it
    first.listen()

    async def serve() -> None:
        broker = Broker(Settings(root=ROOT), Catalog(load_suite(ROOT, "primary").table), Store(tmp_path), Metrics())
        await broker.start()
        server = _Server(create_app(broker), broker, broker.settings, broker.metrics)
        with pytest.raises(InputError, match=f"--port {port}: expected an address to listen on"):
            await server.serve([second])
        assert not broker.accepting  # it ended in good order
        await broker.close()

    asyncio.run(serve())
    first.close()
    second.close()


def test_two_signals_end_it_without_a_traceback(tmp_path: Path) -> None:
    with serving(tmp_path, "--profiler", "replay") as service:
        os.kill(service.pid, signal.SIGTERM)
        os.kill(service.pid, signal.SIGINT)
        assert service.wait(20.0) == 0
        assert len(service.log.splitlines()) == 1, service.log


def test_an_address_of_another_program_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="expected an address"):
        _listen("127.0.0.1", taken.getsockname()[1])
