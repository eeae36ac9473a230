"""Running a service: the store, the broker, uvicorn, and an end in good order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ptxbench.errors import InputError
from ptxbench.service.app import create_app
from ptxbench.service.broker import Broker
from ptxbench.service.catalog import Catalog
from ptxbench.service.guard import Guard
from ptxbench.service.metrics import Metrics
from ptxbench.service.settings import Settings, is_loopback
from ptxbench.service.store import Store

BACKLOG = 2048
KEEP_ALIVE_S = 75
END_TIMEOUT_S = 10
"""For answers that are being sent when the service ends."""


def serve(settings: Settings, say: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status.

    Raises InputError for a store, a profiler, cases or an address that cannot be opened.
    """
    try:
        return asyncio.run(_serve(settings, say))
    except KeyboardInterrupt:
        return 130


async def _serve(settings: Settings, say: Callable[[str], None]) -> int:
    catalog = Catalog.load(settings.root, settings.suite, settings.trace_sets, settings.arch)
    for line in catalog.left_out:
        say(line)
    metrics = Metrics()
    listening = _listen(settings.host, settings.port)
    broker = Broker(settings, catalog, Store(settings.store), metrics)
    try:
        await broker.start()
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        server = _Server(create_app(broker), broker, settings, metrics)
        found = {"auto": f"auto ({'local' if broker.measures else 'replay'})"}.get(settings.profiler, settings.profiler)
        server.on_start = lambda: say(f"{url} serves {found}, store {settings.store}")
        await server.serve([listening])
        if server.force_exit:
            # uvicorn leaves the application's own end out then, and asyncio would report that it was cut off.
            await server.lifespan.shutdown()
    finally:
        await broker.close()
        listening.close()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before anything slow begins. Raises InputError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _no_address(host, port, error) from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        found.close()
        raise _no_address(host, port, error) from error
    return found


def _no_address(host: str, port: int, error: OSError) -> InputError:
    return InputError(f"--host {host} --port {port}: expected an address to listen on, found: {error}; name another")


class _Server(uvicorn.Server):
    """uvicorn, which at the first signal stops taking tasks and lets those that run end, and at the second ends."""

    def __init__(self, app: object, broker: Broker, settings: Settings, metrics: Metrics) -> None:
        guarded = Guard(app, settings.token, metrics, local=is_loopback(settings.host))  # type: ignore[arg-type]
        config = uvicorn.Config(
            guarded,
            log_level="warning",
            access_log=False,
            lifespan="on",
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=END_TIMEOUT_S,
            server_header=False,
            # httptools, which uvicorn takes where it finds it, sets no bound to the size of headers.
            http="h11",
            ws="none",
        )
        super().__init__(config)
        self._broker = broker
        self._draining: asyncio.Task[None] | None = None
        self.on_start: Callable[[], None] = lambda: None
        """Called once requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: uvicorn calls this. Raises InputError where another program began to listen there meanwhile."""
        try:
            await super().startup(sockets)
        except OSError as error:
            await self.lifespan.shutdown()
            host, port = (sockets or [])[0].getsockname()[:2]
            raise _no_address(host, port, error) from error
        self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: uvicorn calls this in place of the system's default."""
        del sig, frame
        asyncio.get_running_loop().call_soon_threadsafe(self._signalled)

    def _signalled(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self.should_exit = self.force_exit = True

    async def _drain(self) -> None:
        await self._broker.drain()
        self.should_exit = True
