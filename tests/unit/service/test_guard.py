import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request

from ptxbench.service import guard as module
from ptxbench.service.guard import Guard
from ptxbench.service.metrics import Metrics
from ptxbench.service.settings import MAX_BODY_BYTES


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body and says how long it was."""
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


application = FastAPI()


@application.post("/evaluate")
async def reads(request: Request) -> int:
    """As ours does; the framework around it answers 500 for an error that it does not know."""
    return len(await request.body())


def ask(
    path: str = "/evaluate",
    token: str | None = None,
    headers: dict[str, str] | None = None,
    chunks: int = 1,
    of: Any = inner,
    stall: bool = False,
    local: bool = True,
) -> tuple[int, bytes, Metrics]:
    metrics = Metrics()
    sent: list[Any] = []
    left = chunks

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        if stall and not left:
            await asyncio.sleep(60.0)
        return {"type": "http.request", "body": b"x" * (1 << 20), "more_body": left > 0}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    asyncio.run(Guard(of, token, metrics, local=local)(scope, receive, send))
    return sent[0]["status"], sent[-1]["body"], metrics


def test_without_a_token_everybody_is_served() -> None:
    assert ask()[:2] == (200, str(1 << 20).encode())


@pytest.mark.parametrize("header", [None, "Bearer other", "Bearer", "Basic secret", "secret"])
def test_wrong_token_is_refused(header: str | None) -> None:
    status, body, metrics = ask(token="secret", headers={"Authorization": header} if header else None)
    assert status == 401
    assert b"secret" not in body
    assert b'operation="evaluate",status="401"' in metrics.text()


@pytest.mark.parametrize("path", ["/", "/definitions", "/tasks/a", "/metrics", "/docs", "/openapi.json", "/health/a"])
def test_nothing_but_health_is_answered_without_the_token(path: str) -> None:
    assert ask(path, token="secret")[0] == 401


HERE = {"Host": "127.0.0.1:8600"}


@pytest.mark.parametrize(
    "origin", ["http://elsewhere.example", "https://127.0.0.1.example:8600", "null", "", "http://["]
)
def test_a_page_of_elsewhere_submits_nothing_where_no_token_keeps_it_out(origin: str) -> None:
    """A browser sends what a page wants sent, and the service runs it."""
    status, body, _ = ask(headers={**HERE, "Origin": origin})
    assert (status, b"Origin" in body) == (403, True)
    assert ask(token="secret", headers={**HERE, "Origin": origin, "Authorization": "Bearer secret"})[0] == 200


def test_a_name_that_turns_out_to_be_this_machine_is_elsewhere() -> None:
    renamed = {"Host": "rebound.example:8600", "Origin": "http://rebound.example:8600"}
    assert ask(headers=renamed)[0] == 403
    assert ask(headers=renamed, local=False)[0] == 200  # the service's own page, on a network that was asked for
    assert ask(headers={**renamed, "Host": "other.example:8600"}, local=False)[0] == 403


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8600", "http://localhost:3000", "https://[::1]"])
def test_a_page_of_this_machine_is_served(origin: str) -> None:
    assert ask(headers={**HERE, "Origin": origin})[0] == 200


def test_right_token_is_served() -> None:
    assert ask(token="secret", headers={"Authorization": "Bearer secret"})[0] == 200


def test_health_needs_no_token() -> None:
    assert ask("/health", token="secret")[0] == 200


@pytest.mark.parametrize("length", [str(MAX_BODY_BYTES + 1), "-1", "1e3", "\u00b2"])
def test_a_body_that_says_it_is_too_long_is_not_read(length: str) -> None:
    status, body, _ = ask(headers={"Content-Length": length})
    assert status == 413
    assert str(MAX_BODY_BYTES).encode() in body


def test_what_follows_a_body_that_is_not_read_is_no_request() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    length = str(MAX_BODY_BYTES + 1).encode()
    scope = {"type": "http", "method": "POST", "path": "/evaluate", "headers": [(b"content-length", length)]}
    asyncio.run(Guard(inner, None, Metrics())(scope, None, send))  # type: ignore[arg-type]
    assert (b"connection", b"close") in sent[0]["headers"]


def test_whoever_leaves_before_the_body_is_there_gets_no_answer() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    metrics, scope = Metrics(), {"type": "http", "method": "POST", "path": "/evaluate", "headers": []}
    asyncio.run(Guard(inner, None, metrics)(scope, receive, send))
    assert sent == []
    assert b'operation="evaluate",status="499"' in metrics.text()


@pytest.mark.parametrize("of", [inner, application])
def test_a_body_that_grows_too_long_is_cut_off(of: Any) -> None:
    most = MAX_BODY_BYTES >> 20
    assert ask(chunks=most, of=of)[:2] == (200, str(MAX_BODY_BYTES).encode())
    status, body, metrics = ask(chunks=most + 1, of=of)
    assert (status, b"send less" in body) == (413, True)
    assert b'operation="evaluate",status="413"' in metrics.text()


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(module, "BODY_TIMEOUT_S", 0.01)
    status, body, _ = ask(chunks=2, stall=True)
    assert (status, b"expected the body within 0.01 s" in body) == (408, True)


@pytest.mark.parametrize("path", ["/whatever/it/is", "whatever", "*", "x:1"])
def test_paths_of_others_make_no_labels(path: str) -> None:
    status, _, metrics = ask(path)
    assert (status, b'operation="other"' in metrics.text()) == (200, True)
