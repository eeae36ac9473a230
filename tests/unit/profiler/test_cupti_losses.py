"""What CUPTI could not tell must be an error: a span that lacks activities is shorter than the truth."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, cast

import pytest

from ptxbench.profiler import sandbox

MAX_LIMIT_REACHED, INVALID_KIND = 12, 21


def record(kind: int = 2, start: int = 100, end: int = 200) -> bytes:
    """A memset's (cupti_activity.h of CUDA 13.0: 88 bytes)."""
    memory = bytearray(88)
    struct.pack_into("<I", memory, 0, kind)
    struct.pack_into("<QQ", memory, 16, start, end)
    return bytes(memory)


class StandInLibrary:
    """Delivers one buffer at a flush, through a callback as the library does."""

    def __init__(self, subject: sandbox.Cupti, records: list[bytes], dropped: int, last: int) -> None:
        self._subject, self._records, self._dropped, self._last = subject, records, dropped, last
        self._completed = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 5)(subject._completed)

    def cuptiActivityFlushAll(self, _: int) -> int:  # noqa: N802
        memory = ctypes.create_string_buffer(b"".join(self._records))
        self._subject._buffers[ctypes.addressof(memory)] = memory
        self._completed(0, 0, ctypes.addressof(memory), len(memory), sum(map(len, self._records)))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, found: Any) -> int:  # noqa: N802
        last = found._obj.value
        following = buffer.value if last is None else last + len(self._records[0])
        if following >= buffer.value + valid.value:
            return self._last
        found._obj.value = following
        return 0

    def cuptiActivityGetNumDroppedRecords(self, _: Any, __: Any, dropped: Any) -> int:  # noqa: N802
        dropped._obj.value = self._dropped
        return 0


def cupti(records: list[bytes], *, dropped: int = 0, last: int = MAX_LIMIT_REACHED) -> sandbox.Cupti:
    subject = object.__new__(sandbox.Cupti)
    subject._names, subject._activities, subject._buffers, subject._fault = {}, [], {}, ""
    subject.library = cast(ctypes.CDLL, StandInLibrary(subject, records, dropped, last))
    return subject


def test_a_whole_buffer_is_taken() -> None:
    assert cupti([record(), record(start=300, end=400)]).take() == [(100, 200, None), (300, 400, None)]


def test_dropped_records_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="3"):
        cupti([record()], dropped=3).take()


def test_a_record_that_ends_the_reading_of_its_buffer_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=str(INVALID_KIND)):
        cupti([record()], last=INVALID_KIND).take()


@pytest.mark.parametrize(("start", "end"), [(0, 0), (100, 0), (200, 199)])
def test_an_activity_without_times_is_an_error(start: int, end: int) -> None:
    """Start and end of 0: CUPTI could not collect them. Taken as they are, they lie before every call and vanish; one
    that ends before it began would shorten a span."""
    with pytest.raises(RuntimeError):
        cupti([record(), record(start=start, end=end)]).take()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_buffer_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """ctypes prints and forgets what a callback raises."""

    def read(_: sandbox.Cupti, __: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(sandbox.Cupti, "_read", read)
    with pytest.raises(RuntimeError):
        cupti([record()]).take()
