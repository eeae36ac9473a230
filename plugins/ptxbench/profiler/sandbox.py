"""The candidate's process: short-lived, torch-free, holding nothing worth stealing.

It is started before its candidate is known, gets one job over one private channel, runs the candidate's calls on
request and dies. It imports the standard library, ``cuda.bindings``, ``tvm_ffi`` and ``cupti`` only: no module of ours.

Channel: length-prefixed messages of ``multiprocessing.connection``. ``{"stage": "imported"}`` comes first; ``CONTEXT``
asks for the CUDA context, which nobody may create beside a timing; ``{"stage": "ready"}`` answers. ``CALL`` asks for a
call, ``WARM_UP`` and a number for so many that nobody times; ``OK`` or ``{"error", "code"}`` answers. All else is JSON
with ``op``. Device memory is the oracle's staging arena, opened through CUDA IPC.
"""

from __future__ import annotations

import argparse
import bisect
import ctypes
import gc
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Connection
from types import MappingProxyType
from typing import Any

CONTEXT = b"x"
CALL = b"c"
WARM_UP = b"w"
OK = b"o"
STRAY_SLACK_NS = 20_000
"""Device and host clocks of CUPTI agree to microseconds; work that starts later than this after a call is stray."""
MAX_MESSAGE_CHARS = 4_000
MAX_LAUNCHES = 64
SPIN_S = 0.02
"""Longer than staging, and than most kernels."""
SPIN_PROCESSORS = 4
# cupti_activity.h: CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET, _CONCURRENT_KERNEL and _MEMCPY2, and of their records what is
# the same in all of them, then registers, grid, block, dynamic shared memory and name of a kernel's. cupti_result.h:
# CUPTI_ERROR_MAX_LIMIT_REACHED ends a buffer.
_KERNEL_KIND = 10
_ACTIVITY_KINDS = (1, 2, _KERNEL_KIND, 22)
_ACTIVITY = struct.Struct("<I12xQQ")
_KERNEL = struct.Struct("<6xH44x6i4xi20xQ")
_NO_MORE_RECORDS = 12
_BUFFER_BYTES = 4 << 20
_PR_SET_PDEATHSIG = 1
_FILE_LIMIT_BYTES = 16 << 20
# DLPack: kDLCUDA and (type code, bits) per dtype name (dlpack.h).
_DLPACK_CUDA = 2
_DLPACK_TYPES = {"bfloat16": (4, 16), "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bool": (6, 8)}
_DLPACK_TYPES |= {"int8": (0, 8), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8)}


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DeviceTensor:
    """A contiguous tensor over a raw device address that speaks DLPack. The memory is never owned."""

    def __init__(self, address: int, shape: list[int], dtype: str) -> None:
        code, bits = _DLPACK_TYPES[dtype]
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides)
        tensor = _Tensor(
            address, _Device(_DLPACK_CUDA, 0), len(shape), _DataType(code, bits, 1), self._shape, self._strides, 0
        )
        self._managed = _Managed(tensor, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CUDA, 0

    def __dlpack__(self, **_: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._managed), b"dltensor", None)


class Cupti:
    """CUPTI's activity records and clock, read with ctypes: cupti-python, which finds and loads the library, makes an
    object of every record, and an evaluation's 200 took it 20 ms (H200 host)."""

    def __init__(self) -> None:
        from cupti import cupti

        cupti.get_timestamp()  # loads the library
        with open("/proc/self/maps") as maps:
            paths = [line.split(maxsplit=5)[5].rstrip() for line in maps if "libcupti.so" in line]
        if not paths:
            raise RuntimeError("cupti-python has loaded no libcupti.so")
        self._library = ctypes.CDLL(paths[0])
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._names: dict[int, str] = {}
        self._activities: list[tuple[int, int, tuple[Any, ...] | None]] = []
        self._fault = ""
        requested = ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_size_t)] * 3)(self._requested)
        completed = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 5)(self._completed)
        self._callbacks = requested, completed  # the library holds no reference
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in _ACTIVITY_KINDS:
            self._call("cuptiActivityEnable", kind)

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} failed with CUPTI error {code}")

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:  # noqa: ANN401
        memory = ctypes.create_string_buffer(_BUFFER_BYTES)
        buffer[0], size[0], most[0] = ctypes.addressof(memory), _BUFFER_BYTES, 0
        self._buffers[buffer[0]] = memory

    def _completed(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        # What a callback raises is forgotten, so it is kept for whoever asks for the activities.
        try:
            record = ctypes.c_void_p()
            following = self._library.cuptiActivityGetNextRecord
            place = ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
            while (code := following(*place)) == 0:
                self._activities.append(self._read(record.value or 0))
            if code != _NO_MORE_RECORDS:
                self._fault = f"CUPTI could not read a buffer to its end: error {code}"
            del self._buffers[buffer]
        except Exception as error:
            self._fault = f"CUPTI's records could not be read: {type(error).__name__}: {error}"

    def _read(self, record: int) -> tuple[int, int, tuple[Any, ...] | None]:
        kind, start, end = _ACTIVITY.unpack(ctypes.string_at(record, _ACTIVITY.size))
        if not 0 < start <= end:
            raise ValueError(f"an activity of kind {kind} has the times {start} to {end}")
        if kind != _KERNEL_KIND:
            return start, end, None
        registers, *shape, smem, name = _KERNEL.unpack(ctypes.string_at(record, _KERNEL.size))
        if name not in self._names:
            self._names[name] = ctypes.string_at(name).decode("utf-8", "replace") if name else "(no name)"
        return start, end, (self._names[name], tuple(shape[:3]), tuple(shape[3:]), smem, registers)

    def now(self) -> int:
        """CUPTI's clock, in ns."""
        time_ns = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(time_ns))
        return time_ns.value

    def take(self) -> list[tuple[int, int, tuple[Any, ...] | None]]:
        """Start, end (ns) and, of a kernel, its configuration: every finished activity since the last time.

        Raises RuntimeError where some were lost: a span without them would be shorter than the truth.
        """
        self._call("cuptiActivityFlushAll", 1)
        dropped = ctypes.c_size_t()
        self._call("cuptiActivityGetNumDroppedRecords", None, 0, ctypes.byref(dropped))
        if dropped.value:
            self._fault = f"CUPTI dropped {dropped.value} records"
        if self._fault:
            raise RuntimeError(self._fault)
        taken, self._activities = self._activities, []
        return taken


class Recorder:
    """Activities, assigned to the calls during which they started."""

    def __init__(self, cupti: Cupti) -> None:
        self._cupti = cupti
        self._calls: list[tuple[int, int, bool]] = []
        self.now = cupti.now

    def record(self, begin: int, end: int, *, kept: bool) -> None:
        """One call lasted from ``begin`` to ``end``; one that is not kept is left out of what ``collect`` tells."""
        self._calls.append((begin, end, kept))

    def collect(self) -> dict[str, Any]:
        """Per kept call since the last collection: span (ns) and activities; stray activities; launches."""
        activities = sorted(self._cupti.take(), key=lambda item: item[:2])
        calls, self._calls = self._calls, []
        begins = [begin - STRAY_SLACK_NS for begin, _, _ in calls]
        first: list[int | None] = [None] * len(calls)
        last, counts, stray = [0] * len(calls), [0] * len(calls), 0
        launches: Counter[tuple[Any, ...]] = Counter()
        for start, end, kernel in activities:
            index = bisect.bisect_right(begins, start) - 1
            if index < 0 or start > calls[index][1] + STRAY_SLACK_NS:
                stray += 1
                continue
            begun = first[index]
            first[index] = start if begun is None else begun
            last[index] = max(last[index], end)
            counts[index] += 1
            if kernel is not None and calls[index][2]:
                launches[kernel] += 1
        kept = [index for index, (_, _, keep) in enumerate(calls) if keep]
        begun_at = [(first[index], last[index]) for index in kept]
        spans = [0 if begun is None else ended - begun for begun, ended in begun_at]
        # Every kernel once before any comes twice, so that many configurations of one cannot hide another.
        ordered = launches.most_common()
        commonest = {item[0][0]: item for item in reversed(ordered)}
        ordered.sort(key=lambda item: item is not commonest[item[0][0]])
        shown = [[*kernel, count / max(1, len(kept))] for kernel, count in ordered[:MAX_LAUNCHES]]
        return {"spans": spans, "activities": [counts[index] for index in kept], "stray": stray, "launches": shown}


def check(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 - whatever CUDA returns
    """Value of a ``cuda.bindings.runtime`` call. Raises RuntimeError with the error's name."""
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"{getattr(code, 'name', code)} ({int(code)})")
    return values[0] if values else None


def open_arena(handle: str) -> int:
    """Map the oracle's staging arena. Returns its device address in this process."""
    from cuda.bindings import runtime as cudart

    memory = cudart.cudaIpcMemHandle_t()
    memory.reserved = bytes.fromhex(handle)
    return int(check(cudart.cudaIpcOpenMemHandle(memory, cudart.cudaIpcMemLazyEnablePeerAccess)))


class PrivateBuffers:
    """Exact-size allocations in place of the arena's, so that a sanitizer knows every tensor's true bounds."""

    def __init__(self, base: int, tensors: list[dict[str, Any]]) -> None:
        from cuda.bindings import runtime as cudart

        self._cudart = cudart
        self._base = base
        self._tensors = tensors
        self.addresses = [int(check(cudart.cudaMalloc(tensor["nbytes"]))) for tensor in tensors]
        self._copy(outputs=False)

    def _copy(self, *, outputs: bool) -> None:
        kind = self._cudart.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        for tensor, private in zip(self._tensors, self.addresses, strict=True):
            staged = self._base + tensor["offset"]
            target, source = (staged, private) if outputs else (private, staged)
            if tensor["output"] or not outputs:
                check(self._cudart.cudaMemcpy(target, source, tensor["nbytes"], kind))
        check(self._cudart.cudaDeviceSynchronize())

    def publish(self) -> None:
        """Copy the outputs to the arena, where the oracle reads them."""
        self._copy(outputs=True)


def load_candidate(job: dict[str, Any], *, private: bool) -> tuple[Callable[[], None], Callable[[], None]]:
    """The candidate bound to its tensors, and what to do after a call."""
    import tvm_ffi

    base = open_arena(job["handle"])
    buffers = PrivateBuffers(base, job["tensors"]) if private else None
    function = tvm_ffi.load_module(job["so_path"])[job["symbol"]]
    # The views refer to the wrappers' shape arrays without owning them, so the call below keeps both alive.
    wrappers = [
        DeviceTensor(buffers.addresses[index] if buffers else base + tensor["offset"], tensor["shape"], tensor["dtype"])
        for index, tensor in enumerate(job["tensors"])
    ]
    arguments: list[Any] = [tvm_ffi.from_dlpack(wrapper) for wrapper in wrappers]
    for position, value in job["scalars"]:
        arguments.insert(position, value)

    def call(_: list[DeviceTensor] = wrappers) -> None:
        function(*arguments)

    return call, (buffers.publish if buffers else lambda: None)


def load_null() -> tuple[Callable[[], None], Callable[[], None]]:
    """No candidate: a call sets four bytes, so that its wall time is what the hand-over itself costs."""
    from cuda.bindings import runtime as cudart

    word = int(check(cudart.cudaMalloc(4)))

    def call() -> None:
        check(cudart.cudaMemsetAsync(word, 0, 4, 0))

    return call, lambda: None


def failure(error: BaseException) -> bytes:
    """An exception as a reply, with the CUDA error that the context is left with."""
    from cuda.bindings import runtime as cudart

    (code,) = cudart.cudaDeviceSynchronize()
    text = f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS]
    return json.dumps({"error": text, "code": int(code)}).encode()


def call_once(call: Callable[[], None], recorder: Recorder | None, *, kept: bool) -> None:
    """One recorded call, until the device is idle. Raises what the call raises, RuntimeError for a CUDA error."""
    from cuda.bindings import runtime as cudart

    begin = recorder.now() if recorder else 0
    call()
    (code,) = cudart.cudaDeviceSynchronize()
    if int(code) != 0:
        raise RuntimeError(f"{code.name} ({int(code)}) after the call")
    if recorder:
        recorder.record(begin, recorder.now(), kept=kept)


def serve_calls(
    channel: Connection,
    call: Callable[[], None],
    recorder: Recorder | None,
    *,
    after: Callable[[], None] = lambda: None,
    operations: Mapping[str, Callable[[], dict[str, Any]]] = MappingProxyType({}),
) -> bool:
    """Answer requests until ``quit`` (False) or, for a worker that outlives its job, ``release`` (True).

    ``after`` runs behind every recorded call, outside its span; ``operations`` answer requests by name.
    """
    ear = Ear(channel.fileno())
    while True:
        ear.wait()
        message = channel.recv_bytes()
        if message not in (CALL, WARM_UP):
            operation = json.loads(message)["op"]
            if operation not in operations:
                return bool(operation == "release")
            try:
                channel.send_bytes(json.dumps(operations[operation]()).encode())
            except RuntimeError as error:
                channel.send_bytes(failure(error))
            continue
        try:
            if message == WARM_UP:
                for _ in range(int(channel.recv_bytes())):
                    call_once(call, recorder, kept=False)
            else:
                call_once(call, recorder, kept=True)
                after()
        except Exception as error:
            channel.send_bytes(failure(error))
        else:
            channel.send_bytes(OK)


def restrict(*, file_bytes: int | None = _FILE_LIMIT_BYTES) -> None:
    """Die with the parent, dump no core, write no file above ``file_bytes`` (None: of any size)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


class Ear:
    """Waits until a descriptor can be read: by spinning at first, where there are processors to spare.

    Sleeping costs a wake-up of some 50 us at both ends of a hand-over; spinning spares it in every timed iteration.
    """

    def __init__(self, descriptor: int, spin_s: float = SPIN_S) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._spin_s = spin_s if (os.cpu_count() or 1) >= SPIN_PROCESSORS else 0.0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether there is something to read, or the other end has gone, within the time."""
        limit = self._spin_s if timeout_s is None else min(self._spin_s, timeout_s)
        end = time.perf_counter() + limit
        while time.perf_counter() < end:
            if self._poll.poll(0):
                return True
        return bool(self._poll.poll(None if timeout_s is None else max(0.0, timeout_s - limit) * 1e3))


def announce(channel: Connection, stage: str) -> None:
    """Say how far the start has come."""
    channel.send_bytes(json.dumps({"stage": stage}).encode())


def import_libraries(*, record: bool) -> None:
    """The part of the start that needs no device."""
    # tvm_ffi imports torch where it can: seconds, and everything that a candidate's process must not hold.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi  # noqa: F401
    from cuda.bindings import runtime  # noqa: F401

    if record:
        from cupti import cupti  # noqa: F401


def warm_up(*, record: bool) -> Recorder | None:
    """Pay for the CUDA context and CUPTI before there is a job."""
    from cuda.bindings import runtime as cudart

    check(cudart.cudaSetDevice(0))
    check(cudart.cudaFree(0))
    recorder = Recorder(Cupti()) if record else None
    # The first activity, timestamp and flush initialize CUPTI lazily; a candidate's first call must not pay for it.
    call, _ = load_null()
    call()
    check(cudart.cudaDeviceSynchronize())
    if recorder:
        recorder.now()
        recorder.collect()
    return recorder


def main() -> None:
    """Serve one job."""
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int)
    where.add_argument("--connect")
    parser.add_argument("--under-tool", action="store_true", help="no CUPTI: the tool owns it")
    parser.add_argument("--private", action="store_true", help="exact-size buffers instead of the arena's")
    options = parser.parse_args()
    restrict()
    channel = Connection(options.fd) if options.fd is not None else Client(options.connect, "AF_UNIX")
    record = not options.under_tool
    import_libraries(record=record)
    announce(channel, "imported")
    if channel.recv_bytes() != CONTEXT:
        return
    recorder = warm_up(record=record)
    gc.disable()  # collecting garbage in the middle of a call would be taken for its work
    announce(channel, "ready")
    job = json.loads(channel.recv_bytes())
    if job.get("op") == "quit":
        return
    try:
        call, after = load_null() if job.get("null") else load_candidate(job, private=options.private)
    except Exception as error:
        channel.send_bytes(failure(error))
        return
    if recorder:
        recorder.collect()  # loading is no work of a call
    channel.send_bytes(OK)
    serve_calls(channel, call, recorder, after=after, operations={"collect": recorder.collect} if recorder else {})


if __name__ == "__main__":
    main()
