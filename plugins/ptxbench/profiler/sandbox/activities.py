"""What the device did: CUPTI's activity records, assigned to the calls during which they started."""

from __future__ import annotations

import bisect
import ctypes
import struct
from collections import Counter
from typing import Any

from .messages import MAX_LAUNCHES

STRAY_SLACK_NS = 20_000
"""Device and host clocks of CUPTI agree to microseconds; work that starts later than this after a call is stray."""
OUTLASTING_SLACK_NS = 100_000
"""A call ends when the device is idle. What ends later than this behind it ran in a context of its own or was hidden
from the waiting, and so works while nobody times it. Less could not be told from an uncertain clock, and gains no more
than the judge allows a span anyway (``CLOCK_SLACK_NS``)."""
# cupti_activity.h: CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET, _CONCURRENT_KERNEL and _MEMCPY2, and of their records what is
# the same in all of them, then registers, grid, block, dynamic shared memory and name of a kernel's. cupti_result.h:
# CUPTI_ERROR_MAX_LIMIT_REACHED ends a buffer.
_KERNEL_KIND = 10
_ACTIVITY_KINDS = (1, 2, _KERNEL_KIND, 22)
_ACTIVITY = struct.Struct("<I12xQQ")
_KERNEL = struct.Struct("<6xH44x6i4xi20xQ")
_NO_MORE_RECORDS = 12
_BUFFER_BYTES = 4 << 20


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
        self.library = ctypes.CDLL(paths[0])
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
        code = getattr(self.library, name)(*arguments)
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
            following = self.library.cuptiActivityGetNextRecord
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
        """Per kept call since the last collection: span (ns) and activities; launches; stray activities.

        Stray are those that began outside every call or outlasted theirs.
        """
        activities = sorted(self._cupti.take(), key=lambda item: item[:2])
        calls, self._calls = self._calls, []
        begins = [begin - STRAY_SLACK_NS for begin, _, _ in calls]
        first: list[int | None] = [None] * len(calls)
        last, counts, stray = [0] * len(calls), [0] * len(calls), 0
        launches: Counter[tuple[Any, ...]] = Counter()
        for start, end, kernel in activities:
            index = bisect.bisect_right(begins, start) - 1
            ended_by = calls[index][1] if index >= 0 else 0
            if index < 0 or start > ended_by + STRAY_SLACK_NS or end > ended_by + OUTLASTING_SLACK_NS:
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
