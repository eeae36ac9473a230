"""The parts of the candidate's process that need no device: assigning activities to calls, waiting, serving."""

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler import sandbox
from ptxbench.profiler.replies import recording_of
from ptxbench.profiler.sandbox import (
    OUTLASTING_SLACK_NS,
    STRAY_SLACK_NS,
    Answers,
    DeviceTensor,
    Ear,
    Recorder,
    Seal,
    Status,
    serve_calls,
)
from ptxbench.profiler.worker import SANDBOX_PROGRAM

MS = 1_000_000
SECRET, NONCE = b"s" * 16, b"n" * 16
DONE = Status(failed=False, code=0)


def test_program_needs_nothing_of_ours_and_no_library_to_be_read() -> None:
    folder = str(SANDBOX_PROGRAM.parents[1])
    program = f"import sys; sys.path.insert(0, {folder!r}); import sandbox; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in found.stdout.split()} & {"ptxbench", "torch", "cuda", "pydantic"}


class Activities(sandbox.Cupti):
    """Stands in for CUPTI: activities are fed by hand and taken at a collection."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def now(self) -> int:
        return 0

    def take(self) -> list[Any]:
        taken, self.waiting = self.waiting, []
        return taken

    def ran(self, start: int, end: int, name: str | None = None, grid: int = 1) -> None:
        kernel = (name, (grid, 1, 1), (128, 1, 1), 0, 32) if name else None
        self.waiting.append((start, end, kernel))


@pytest.fixture
def cupti() -> Activities:
    return Activities()


class StandInLibrary:
    """Hands out records as CUPTI lays them out in a buffer (cupti_activity.h of CUDA 13.0, some fields filled in)."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:  # noqa: N802
        offsets = [sum(map(len, self.records[:index])) for index in range(len(self.records) + 1)]
        last = record._obj.value
        following = 0 if last is None else offsets[offsets.index(last - buffer.value) + 1]
        if following >= valid.value:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        record._obj.value = buffer.value + following
        return 0


def test_records_are_read_where_the_library_puts_them() -> None:
    name = ctypes.create_string_buffer(b"_Z4gemmv")
    kernel = bytearray(216)
    struct.pack_into("<I", kernel, 0, 10)
    struct.pack_into("<H", kernel, 6, 168)
    struct.pack_into("<QQ", kernel, 16, 1_000, 2_500)
    struct.pack_into("<6i", kernel, 52, 132, 2, 3, 384, 4, 5)
    struct.pack_into("<2i", kernel, 76, 11, 196_608)
    struct.pack_into("<Q", kernel, 104, ctypes.addressof(name))
    memset = bytearray(88)
    struct.pack_into("<I", memset, 0, 2)
    struct.pack_into("<QQ", memset, 16, 100, 200)
    records = [bytes(memset), bytes(kernel), bytes(memset)]
    memory = ctypes.create_string_buffer(b"".join(records))
    subject = object.__new__(sandbox.Cupti)
    subject.library = cast(ctypes.CDLL, StandInLibrary(records))
    subject._names, subject._activities = {}, []
    subject._buffers = {ctypes.addressof(memory): memory}
    subject._completed(0, 0, ctypes.addressof(memory), len(memory), sum(map(len, records)))
    shown = ("_Z4gemmv", (132, 2, 3), (384, 4, 5), 196_608, 168)
    assert subject._activities == [(100, 200, None), (1_000, 2_500, shown), (100, 200, None)]
    assert subject._buffers == {}


def test_span_is_from_the_first_start_to_the_last_end(cupti: Activities) -> None:
    recorder = Recorder(cupti)
    recorder.record(10 * MS, 12 * MS, kept=True)
    # Delivered out of order; one runs beside the other and ends before it.
    cupti.ran(10 * MS + 500, 11 * MS, "_Z1bv")
    cupti.ran(10 * MS + 100, 10 * MS + 300)
    cupti.ran(10 * MS + 600, 10 * MS + 700, "_Z1av")
    found = recorder.collect()
    assert (found["spans"], found["activities"], found["stray"]) == ([MS - 100], [3], 0)


def test_activities_belong_to_the_call_in_which_they_started(cupti: Activities) -> None:
    recorder = Recorder(cupti)
    for index in range(3):
        recorder.record(index * MS, index * MS + MS // 2, kept=True)
    cupti.ran(2 * MS + 10, 2 * MS + 40, "_Z1av", grid=7)
    cupti.ran(0, 70, "_Z1av", grid=7)
    found = recorder.collect()
    assert (found["spans"], found["activities"]) == ([70, 0, 30], [1, 0, 1])
    assert found["launches"] == [["_Z1av", (7, 1, 1), (128, 1, 1), 0, 32, 2 / 3]]


def test_work_outside_every_call_is_stray(cupti: Activities) -> None:
    recorder = Recorder(cupti)
    recorder.record(MS, 2 * MS, kept=True)
    cupti.ran(MS - STRAY_SLACK_NS - 1, MS, "_Z1av")
    cupti.ran(MS - STRAY_SLACK_NS, MS - 10, "_Z1av")
    cupti.ran(2 * MS + STRAY_SLACK_NS, 2 * MS + STRAY_SLACK_NS + 5, "_Z1av")
    cupti.ran(2 * MS + STRAY_SLACK_NS + 1, 3 * MS, "_Z1av")
    found = recorder.collect()
    assert (found["stray"], found["activities"]) == (2, [2])


def test_work_that_outlasts_its_call_is_stray(cupti: Activities) -> None:
    """A kernel in a context of its own is not waited for: begun in a warm-up, it could do the work of all that follow
    before they begin, and leave a tiny launch to each of them."""
    recorder = Recorder(cupti)
    recorder.record(MS, 2 * MS, kept=False)
    recorder.record(8 * MS, 9 * MS, kept=True)
    cupti.ran(MS + 10, 2 * MS + OUTLASTING_SLACK_NS, "_Z4warmv")
    cupti.ran(MS + 20, 8 * MS + 500_000, "_Z10persistentv")
    cupti.ran(8 * MS + 10, 8 * MS + 20, "_Z4tinyv")
    found = recorder.collect()
    assert (found["stray"], found["spans"], found["activities"]) == (1, [10], [1])
    recorder.record(10 * MS, 11 * MS, kept=True)
    cupti.ran(10 * MS, 11 * MS + OUTLASTING_SLACK_NS + 1, "_Z5longv")
    assert recorder.collect()["stray"] == 1


def test_calls_that_are_not_kept_leave_no_trace(cupti: Activities) -> None:
    recorder = Recorder(cupti)
    for index, kept in enumerate([False, True, False, True]):
        recorder.record(index * MS, index * MS + MS // 2, kept=kept)
        cupti.ran(index * MS + 10, index * MS + 20 + index, "_Z4warmv" if not kept else "_Z1av")
    found = recorder.collect()
    assert (found["spans"], found["activities"], found["stray"]) == ([11, 13], [1, 1], 0)
    assert [launch[0] for launch in found["launches"]] == ["_Z1av"]
    assert found["launches"][0][-1] == 1.0


def test_collection_begins_anew(cupti: Activities) -> None:
    recorder = Recorder(cupti)
    recorder.record(MS, 2 * MS, kept=True)
    cupti.ran(MS, MS + 5, "_Z1av")
    recorder.collect()
    assert recorder.collect() == {"spans": [], "activities": [], "stray": 0, "launches": []}


CALLS = st.lists(st.tuples(st.integers(1, 5 * MS), st.integers(0, MS)), max_size=5)


@given(CALLS, st.lists(st.tuples(st.integers(0, 20 * MS), st.integers(0, MS), st.booleans()), max_size=12))
def test_honest_recordings_are_accepted_and_lose_nothing(
    calls: list[tuple[int, int]], activities: list[tuple[int, int, bool]]
) -> None:
    stand_in = Activities()
    recorder = Recorder(stand_in)
    clock = 0
    for gap, length in calls:
        recorder.record(clock + gap, clock + gap + length, kept=True)
        clock += gap + length
    for start, length, is_kernel in activities:
        stand_in.ran(start, start + length, "_Z1av" if is_kernel else None)
    recording = recording_of(json.dumps(recorder.collect()).encode(), len(calls))
    assert sum(recording.activities) + recording.stray == len(activities)


@pytest.mark.parametrize(
    ("shape", "strides"), [([], []), ([5], [1]), ([2, 3, 4], [12, 4, 1]), ([1, 8192, 5120], [41_943_040, 5120, 1])]
)
def test_tensor_is_contiguous_on_the_device(shape: list[int], strides: list[int]) -> None:
    tensor = DeviceTensor(0x7F0000001000, shape, "bfloat16")
    view = tensor._managed.tensor
    assert (view.data, view.ndim, view.byte_offset) == (0x7F0000001000, len(shape), 0)
    assert (list(view.shape[: len(shape)]), list(view.strides[: len(shape)])) == (shape, strides)
    assert (view.dtype.code, view.dtype.bits, view.dtype.lanes) == (4, 16, 1)
    assert tensor.__dlpack_device__() == (2, 0)
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    assert is_valid(tensor.__dlpack__(stream=None), b"dltensor") == 1


@pytest.mark.parametrize("spin_s", [0.0, 0.05])
def test_ear_hears_within_the_time(spin_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    reading, writing = os.pipe()
    ear = Ear(reading, spin_s)
    begin = time.monotonic()
    assert not ear.wait(0.1)
    assert time.monotonic() - begin >= 0.09
    threading.Timer(0.02, os.write, (writing, b"x")).start()
    assert ear.wait(5)
    assert os.read(reading, 1) == b"x"
    os.close(writing)
    assert ear.wait()
    os.close(reading)


def test_ear_does_not_spin_on_few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert Ear(0)._spin_s == 0.0


class Served:
    """``serve_calls`` in a thread, over CUDA calls that succeed until ``code`` says otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = self.calls = self.after = 0
        self.fails = False
        self.returned: bool | None = None
        result = type("Result", (int,), {"name": "cudaErrorIllegalAddress"})
        runtime = SimpleNamespace(cudaDeviceSynchronize=lambda: (result(self.code),))
        monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(runtime=runtime))
        ours, theirs = socket.socketpair()
        self.channel = Connection(ours.detach())
        self.seal = Seal(SECRET)
        self._thread = threading.Thread(target=self._serve, args=(Connection(theirs.detach()),))
        self._thread.start()

    def _serve(self, channel: Connection) -> None:
        def call() -> None:
            self.calls += 1
            if self.fails:
                raise ValueError("refused")

        def after() -> None:
            self.after += 1

        job = {"secret": SECRET.hex(), "nonce": NONCE.hex()}
        operations: dict[str, Any] = {"collect": lambda: {"spans": []}}
        with channel:
            answers = Answers(channel, job)
            self.returned = serve_calls(channel, call, None, answers, after=after, operations=operations)

    def ask(self, request: bytes, number: bytes = b"") -> Status:
        self.channel.send_bytes(request + NONCE + number)
        status = self.seal.open_status(NONCE, self.channel.recv_bytes())
        assert status is not None
        return status

    def request(self, operation: str) -> Any:
        self.channel.send_bytes(json.dumps({"op": operation, "nonce": NONCE.hex()}).encode())
        body = self.seal.open_body(NONCE, self.channel.recv_bytes())
        assert body is not None
        return json.loads(body)

    def quit(self, operation: str) -> None:
        self.channel.send_bytes(json.dumps({"op": operation}).encode())
        self._thread.join(5)
        self.channel.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(monkeypatch)
    yield served
    if not served.channel.closed:
        served.quit("quit")


def test_calls_are_served(served: Served) -> None:
    assert served.ask(sandbox.CALL) == DONE
    assert served.ask(sandbox.WARM_UP, b"3") == DONE
    assert (served.calls, served.after) == (4, 1)
    assert served.request("collect") == {"spans": []}


def test_failures_are_answered_and_serving_goes_on(served: Served) -> None:
    served.code = 700
    assert served.ask(sandbox.CALL) == Status(failed=True, code=700)
    told = {"error": "RuntimeError: cudaErrorIllegalAddress (700) after the call", "code": 700}
    assert served.request(sandbox.EXPLAIN) == told
    assert served.ask(sandbox.WARM_UP, b"2") == Status(failed=True, code=700)
    served.code, served.fails = 0, True
    assert served.ask(sandbox.CALL) == Status(failed=True, code=0)
    assert served.request(sandbox.EXPLAIN) == {"error": "ValueError: refused", "code": 0}
    served.fails = False
    assert served.ask(sandbox.CALL) == DONE
    assert served.after == 1


@pytest.mark.parametrize(("operation", "lives_on"), [("quit", False), ("release", True)])
def test_last_request(served: Served, operation: str, lives_on: bool) -> None:
    served.quit(operation)
    assert served.returned is lives_on
