"""Whatever a hostile worker writes becomes a WorkerError that says what was wrong, and nothing else."""

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler import replies
from ptxbench.profiler.replies import (
    MAX_SPAN_NS,
    Inbox,
    WorkerError,
    expect_stage,
    failure_of,
    recording_of,
)
from ptxbench.profiler.sandbox import MAX_LAUNCHES, MAX_MESSAGE_CHARS
from ptxbench.records import RunEvidence, RunStatus

LAUNCH = ["_Z4gemmPf", [132, 1, 1], [384, 1, 1], 196_608, 168, 1.0]
GOOD: dict[str, Any] = {"spans": [800_000, 801_000], "activities": [1, 1], "stray": 0, "launches": [LAUNCH]}


def reply(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def launched(position: int, value: object) -> bytes:
    return reply(launches=[[*LAUNCH[:position], value, *LAUNCH[position + 1 :]]])


def test_honest_recording() -> None:
    recording = recording_of(reply(), 2)
    assert recording.spans == (800_000, 801_000)
    assert recording.launches[0].grid == (132, 1, 1)
    assert recording.launches[0].launches_per_call == 1.0


def test_recording_of_calls_that_did_nothing() -> None:
    assert recording_of(reply(spans=[0], activities=[0], launches=[]), 1).spans == (0,)


MALFORMED = [
    (b"", "the reply"),
    (b"o", "the reply"),
    (b"\xff\xfe\x00", "the reply"),
    (b"[" * 100_000, "the reply"),
    (b'{"spans": [1, 2', "the reply"),
    (b"null", "the reply"),
    (b"[]", "the reply"),
    (b"{}", "spans"),
    (reply(spans=None), "spans"),
    (reply(spans="12"), "spans"),
    (reply(spans={"0": 1, "1": 2}), "spans"),
    (reply(spans=[1, "2"]), "spans.1"),
    (reply(spans=[1, 2.5]), "spans.1"),
    (reply(spans=[1, True]), "spans.1"),
    (reply(spans=[-1, 2]), "spans.0"),
    (reply(spans=[1, float("nan")]), "spans.1"),
    (reply(spans=[1, float("inf")]), "spans.1"),
    (reply(spans=[1, MAX_SPAN_NS + 1]), "spans.1"),
    (reply(spans=[1, 10**400]), "spans.1"),
    (reply().replace(b"801000", b"9" * 10_000), ""),
    (reply(activities=[1, -1]), "activities.1"),
    (reply(activities=[1, 1 << 31]), "activities.1"),
    (reply(stray=-1), "stray"),
    (reply(stray="0"), "stray"),
    (reply(launches={}), "launches"),
    (reply(launches=[LAUNCH] * (MAX_LAUNCHES + 1)), "launches"),
    (reply(launches=[LAUNCH[:5]]), "launches.0"),
    (reply(launches=[[*LAUNCH, 1]]), "launches.0"),
    (reply(launches=["gemm"]), "launches.0"),
    (launched(0, 7), "launches.0.0"),
    (launched(0, None), "launches.0.0"),
    (launched(0, "\ud800"), ""),
    (launched(1, [132, 1]), "launches.0.1"),
    (launched(1, [132, 1, 0]), "launches.0.1"),
    (launched(2, "384"), "launches.0.2"),
    (launched(3, -1), "launches.0.3"),
    (launched(4, 1.5), "launches.0.4"),
    (launched(5, float("nan")), "launches.0.5"),
    (launched(5, float("inf")), "launches.0.5"),
    (launched(5, -1), "launches.0.5"),
    (launched(5, "1"), "launches.0.5"),
    (reply(extra=1), "extra"),
]


@pytest.mark.parametrize(("answer", "field"), MALFORMED, ids=[str(number) for number in range(len(MALFORMED))])
def test_malformed_recording_names_the_field(answer: bytes, field: str) -> None:
    with pytest.raises(WorkerError, match="something else than a recording of its calls") as caught:
        recording_of(answer, 2)
    assert caught.value.status is RunStatus.RUNTIME_ERROR
    assert f"calls: {field}" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("changes", [{"spans": [1]}, {"activities": [1, 1, 1]}, {"spans": [], "activities": []}])
def test_recording_of_another_number_of_calls(changes: dict[str, Any]) -> None:
    with pytest.raises(WorkerError, match="expected spans and activities of 2 calls, found"):
        recording_of(reply(**changes), 2)


def test_a_worker_that_cannot_tell_says_why() -> None:
    with pytest.raises(WorkerError, match="CUPTI dropped 3 records") as caught:
        recording_of(b'{"error": "RuntimeError: CUPTI dropped 3 records", "code": 0}', 2)
    assert caught.value.status is RunStatus.RUNTIME_ERROR


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FORGED = st.fixed_dictionaries(
    {},
    optional={
        "spans": JSON | st.lists(st.integers(), max_size=3),
        "activities": JSON | st.lists(st.integers(0, 9), max_size=3),
        "stray": JSON,
        "launches": JSON | st.lists(st.lists(JSON, min_size=6, max_size=6), max_size=2),
        "error": JSON,
        "code": JSON,
    },
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | FORGED.map(lambda v: json.dumps(v).encode()))
def test_any_reply_is_read_or_becomes_a_worker_error(answer: bytes) -> None:
    with contextlib.suppress(WorkerError):
        assert len(recording_of(answer, 2).spans) == 2
    failure = failure_of(answer, RunStatus.LOAD_ERROR)
    # What is kept of it must survive being stored.
    evidence = RunEvidence(status=failure.status, message=str(failure), error_code=failure.code)
    assert RunEvidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_honest_failure() -> None:
    failure = failure_of(b'{"error": "RuntimeError: cudaErrorIllegalAddress (700)", "code": 700}', RunStatus.LOAD_ERROR)
    assert (failure.status, str(failure), failure.code) == (
        RunStatus.LOAD_ERROR,
        "RuntimeError: cudaErrorIllegalAddress (700)",
        700,
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"PASSED",
        b"{}",
        b'"ok"',
        b'{"error": 7}',
        b'{"error": "no", "code": "700"}',
        b'{"error": "no", "code": 1e400}',
        b'{"error": "no", "code": 99999999999}',
        b'{"error": "no", "code": true}',
        b'{"error": "\\ud800"}',
        b'{"error": "no", "verdict": "correct"}',
        json.dumps({"error": "x" * (MAX_MESSAGE_CHARS + 1)}).encode(),
    ],
)
def test_forged_failure_is_a_worker_error_that_quotes_it(answer: bytes) -> None:
    failure = failure_of(answer, RunStatus.RUNTIME_ERROR)
    assert (failure.status, failure.code) == (RunStatus.RUNTIME_ERROR, None)
    assert "something else than OK or an error" in str(failure)
    assert repr(answer[:20])[:-1] in str(failure)
    assert len(str(failure)) < 1000


def test_the_stages_of_a_start() -> None:
    expect_stage(b'{"stage": "imported"}', "imported")
    expect_stage(b'{"stage": "ready"}', "ready")
    for message in (b"", b"{}", b'{"stage": "done"}', b"hello"):
        with pytest.raises(WorkerError, match="something else than ready"):
            expect_stage(message, "ready")
    with pytest.raises(WorkerError, match="expected a worker that is ready, found one that is imported"):
        expect_stage(b'{"stage": "imported"}', "ready")


@pytest.fixture
def ends() -> Iterator[tuple[Inbox, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Inbox(ours.fileno()), theirs


Ends = tuple[Inbox, socket.socket]


def frame(message: bytes) -> bytes:
    return struct.pack("!i", len(message)) + message


@pytest.mark.parametrize("size", [0, 1, 3, 70_000])
def test_inbox_reads_what_the_standard_library_sends(ends: Ends, size: int) -> None:
    inbox, theirs = ends
    channel = Connection(os.dup(theirs.fileno()))

    def send() -> None:
        channel.send_bytes(bytes(size))
        channel.send_bytes(b"next")

    sender = threading.Thread(target=send)
    sender.start()
    assert inbox.receive(5) == bytes(size)
    assert inbox.receive(5) == b"next"
    sender.join()
    channel.close()


def test_inbox_keeps_what_came_along(ends: Ends) -> None:
    inbox, theirs = ends
    theirs.sendall(frame(b"a") + frame(b"") + frame(b"c")[:3])
    assert inbox.receive(1) == b"a"
    assert inbox.waiting(0)
    assert inbox.receive(0) == b""
    assert inbox.waiting(0)
    theirs.sendall(frame(b"c")[3:])
    assert inbox.receive(1) == b"c"
    assert not inbox.waiting(0)


@pytest.mark.parametrize("sent", [b"", b"\0", frame(b"half a message")[:9]])
def test_inbox_does_not_wait_for_ever_for_the_rest(ends: Ends, sent: bytes) -> None:
    inbox, theirs = ends
    theirs.sendall(sent)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        inbox.receive(0.1)
    assert 0.05 < time.monotonic() - begin < 20


def test_inbox_limits_the_time_of_a_message_that_drips(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    # One byte at a time, and always another one to read.
    monkeypatch.setattr(replies, "_READ_BYTES", 1)
    inbox, theirs = ends
    theirs.sendall(struct.pack("!i", 100_000) + bytes(50_000))
    with pytest.raises(TimeoutError):
        inbox.receive(0)
    assert len(inbox._buffer) == 1


@pytest.mark.parametrize("header", [struct.pack("!i", -1) + b"\0" * 8, struct.pack("!i", 1 << 30), b"HTTP"])
def test_inbox_refuses_a_message_that_would_fill_the_memory(ends: Ends, header: bytes) -> None:
    inbox, theirs = ends
    theirs.sendall(header)
    with pytest.raises(WorkerError, match=r"announced a reply of .*expected at most") as caught:
        inbox.receive(1)
    assert caught.value.status is RunStatus.RUNTIME_ERROR


def test_inbox_takes_a_message_of_the_largest_size(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "MAX_REPLY_BYTES", 10)
    inbox, theirs = ends
    theirs.sendall(frame(b"0123456789") + frame(b"01234567890"))
    assert inbox.receive(1) == b"0123456789"
    with pytest.raises(WorkerError, match="11 bytes"):
        inbox.receive(1)


def test_inbox_at_the_end_of_the_stream(ends: Ends) -> None:
    inbox, theirs = ends
    theirs.sendall(frame(b"last") + b"\0\0")
    theirs.close()
    assert inbox.receive(1) == b"last"
    with pytest.raises(EOFError):
        inbox.receive(1)


def test_inbox_is_not_held_by_a_byte_out_of_band(ends: Ends) -> None:
    """Such a byte makes the socket readable and is not read: the oracle would wait for the candidate for ever."""
    inbox, theirs = ends
    theirs.send(b"!", socket.MSG_OOB)
    rescue = threading.Timer(5, lambda: theirs.send(frame(b"late")))
    rescue.start()
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        inbox.receive(0.1)
    assert time.monotonic() - begun < 2
    rescue.cancel()
    theirs.send(frame(b"whole"))
    assert inbox.receive(5) == b"whole"
