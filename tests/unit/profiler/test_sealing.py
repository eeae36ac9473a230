"""Answers that belong to their request: anything else is none."""

import pytest

from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.sandbox import STATUS_BYTES, Seal, Status
from tests.unit.profiler.stand_in import CONNECT, LOADED, READY, Start

SECRET, NONCE = b"s" * 16, b"n" * 16
DONE, FAILED = Status(failed=False, code=0), Status(failed=True, code=700)


@pytest.mark.parametrize("status", [DONE, FAILED, Status(failed=True, code=-1)])
def test_statuses_have_one_size_and_come_back(status: Status) -> None:
    sandbox, oracle = Seal(SECRET), Seal(SECRET)
    for _ in range(3):
        answer = sandbox.close_status(NONCE, status)
        assert len(answer) == STATUS_BYTES
        assert oracle.open_status(NONCE, answer) == status


def test_bodies_come_back() -> None:
    sandbox, oracle = Seal(SECRET), Seal(SECRET)
    for body in (b"", b"{}", b"x" * 100_000):
        assert oracle.open_body(NONCE, sandbox.close_body(NONCE, body)) == body


@pytest.mark.parametrize(
    "forger",
    [
        lambda: Seal(b"t" * 16).close_status(NONCE, DONE),
        lambda: Seal(SECRET).close_status(b"m" * 16, DONE),
        lambda: Seal(SECRET).close_status(NONCE, DONE)[:-1],
        lambda: Seal(SECRET).close_status(NONCE, DONE) + b"x",
        lambda: b"\1" + Seal(SECRET).close_status(NONCE, DONE)[1:],
        lambda: bytes(STATUS_BYTES),
        lambda: b"",
    ],
    ids=["another job", "another request", "short", "long", "changed", "zeros", "empty"],
)
def test_what_is_no_answer_to_the_request(forger) -> None:
    assert Seal(SECRET).open_status(NONCE, forger()) is None
    assert Seal(SECRET).open_body(NONCE, forger()) is None


def test_an_answer_holds_once() -> None:
    sandbox, oracle = Seal(SECRET), Seal(SECRET)
    answer = sandbox.close_status(NONCE, DONE)
    assert oracle.open_status(NONCE, answer) == DONE
    assert oracle.open_status(NONCE, answer) is None


REPLAY = """
import sandbox
message = channel.recv_bytes()
frame = talk.seal.close_status(message[1:17], sandbox.Status(False, 0))
channel.send_bytes(frame)
channel.recv_bytes()
channel.send_bytes(frame)
time.sleep(60)
"""


def test_an_answer_that_was_recorded_is_no_answer_to_the_next_call(start: Start) -> None:
    worker = start(CONNECT + READY + LOADED + REPLAY)
    worker.wait_ready()
    worker.load({})
    worker.call()
    with pytest.raises(WorkerError, match="something else than an answer to this request"):
        worker.call()
