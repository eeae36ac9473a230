"""What CUPTI's callbacks tell the candidate's process, with a stand-in for the library: it calls them as CUPTI does."""

from __future__ import annotations

import base64
import ctypes
import hashlib
from typing import Any, cast

import pytest

from ptxbench.profiler.sandbox import MAX_IMAGE_BYTES, MAX_MODULES, MAX_NAMES, Loads

RESOURCE, DRIVER, RUNTIME = 3, 1, 2
CONTEXT_CREATED, MODULE_LOADED = 1, 6
CU_MODULE_LOAD_DATA, CU_GET_PROC_ADDRESS, CUDA_ENTRY_POINT = 19, 677, 468
CU_LAUNCH_KERNEL = 307
ENTER, EXIT = 0, 1


class ModuleData(ctypes.Structure):
    """``CUpti_ModuleResourceData``, spelled out by offset: 4 bytes, 4 of padding, 8, 8."""

    _pack_ = 1
    _fields_ = (
        ("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("size", ctypes.c_uint64), ("image", ctypes.c_uint64)
    )  # fmt: skip


class Library:
    """CUPTI's side of a subscription."""

    def __init__(self, *, subscribe: int = 0, refused: tuple[tuple[int, int], ...] = ()) -> None:
        self.enabled: list[tuple[int, int]] = []
        self._subscribe, self._refused = subscribe, refused
        self._callback: Any = None

    def cuptiSubscribe(self, handle: Any, callback: Any, data: Any) -> int:  # noqa: N802
        assert data is None
        handle._obj.value, self._callback = 77, callback
        return self._subscribe

    def cuptiEnableCallback(self, enable: int, handle: Any, domain: int, cbid: int) -> int:  # noqa: N802
        assert (enable, handle.value) == (1, 77)
        if (domain, cbid) in self._refused:
            return 1
        self.enabled.append((domain, cbid))
        return 0

    def load(self, image: bytes | None) -> None:
        held = ctypes.create_string_buffer(image or b"", max(1, len(image or b"")))
        module = ModuleData(1, 0, len(image or b""), ctypes.addressof(held) if image is not None else 0)
        resource = (ctypes.c_uint64 * 3)(1, 2, ctypes.addressof(module))
        self._callback(None, RESOURCE, MODULE_LOADED, ctypes.addressof(resource))

    def create_context(self) -> None:
        if (RESOURCE, CONTEXT_CREATED) in self.enabled:
            resource = (ctypes.c_uint64 * 3)(2, 0, 0)
            self._callback(None, RESOURCE, CONTEXT_CREATED, ctypes.addressof(resource))

    def call(self, domain: int, cbid: int, function: bytes, name: bytes | None = None, site: int = ENTER) -> None:
        if (domain, cbid) not in self.enabled:
            return
        symbol, shown = ctypes.c_char_p(name), ctypes.c_char_p(function)
        parameters = (ctypes.c_void_p * 2)(ctypes.cast(symbol, ctypes.c_void_p), None)
        function_at = ctypes.cast(shown, ctypes.c_void_p).value or 0
        data = (ctypes.c_uint64 * 4)(site, function_at, ctypes.addressof(parameters), 0)
        self._callback(None, domain, cbid, ctypes.addressof(data))


@pytest.fixture
def library() -> Library:
    return Library()


def watch(library: Library) -> Loads:
    return Loads(cast(ctypes.CDLL, library))


def test_modules_are_told_by_hash_and_image_in_order(library: Library) -> None:
    loads = watch(library)
    images = [b"\x7fELF first", b"second", b"third"]
    for image in images:
        library.load(image)
    told = loads.tell()
    assert [module["sha256"] for module in told["modules"]] == [hashlib.sha256(image).hexdigest() for image in images]
    assert [module["bytes"] for module in told["modules"]] == list(map(len, images))
    assert told["fault"] == ""
    for _ in range(2):  # asking again begins again
        loads.tell()
        assert [base64.b64decode(loads.next_image()["image"]) for _ in images] == images
        assert loads.next_image() == {"image": ""}


def test_lookups_and_loading_calls_are_told_once_and_by_kind(library: Library) -> None:
    loads = watch(library)
    for _ in range(2):
        library.call(RUNTIME, CUDA_ENTRY_POINT, b"cudaGetDriverEntryPointByVersion", b"cuTensorMapEncodeTiled")
        library.call(DRIVER, CU_GET_PROC_ADDRESS, b"cuGetProcAddress_v2", b"cuInit")
        library.call(DRIVER, CU_MODULE_LOAD_DATA, b"cuModuleLoadData", b"ignored")
        library.call(DRIVER, CU_GET_PROC_ADDRESS, b"cuGetProcAddress_v2", b"later", site=EXIT)
        library.call(DRIVER, CU_GET_PROC_ADDRESS, b"cuGetProcAddress_v2", None)
    assert loads.tell() == {
        "modules": [],
        "entry_points": ["cuTensorMapEncodeTiled"],
        "lookups": ["cuInit"],
        "calls": ["cuModuleLoadData"],
        "fault": "",
    }


def test_a_launch_has_no_callback(library: Library) -> None:
    """Whatever has one pays for it in every timed call."""
    watch(library)
    assert (DRIVER, CU_LAUNCH_KERNEL) not in library.enabled
    assert len(library.enabled) == len(set(library.enabled)) < 30


def test_a_context_of_the_candidates_own_is_told(library: Library) -> None:
    """What runs there no call waits for; the process's own context was created before."""
    loads = watch(library)
    library.create_context()
    loads.begin()
    assert loads.tell()["fault"] == ""
    library.create_context()
    assert "a CUDA context was created beside" in loads.tell()["fault"]


def test_what_was_before_the_candidate_is_forgotten(library: Library) -> None:
    loads = watch(library)
    library.load(b"ours")
    library.call(DRIVER, CU_GET_PROC_ADDRESS, b"cuGetProcAddress_v2", b"cuInit")
    loads.begin()
    library.load(b"theirs")
    told = loads.tell()
    assert [module["bytes"] for module in told["modules"]] == [6]
    assert told["lookups"] == []


def test_what_cannot_be_watched_is_said(library: Library) -> None:
    assert "cuptiSubscribe failed with CUPTI error 39" in watch(Library(subscribe=39)).tell()["fault"]
    missing = Library(refused=((RUNTIME, CUDA_ENTRY_POINT),))
    loads = watch(missing)
    missing.load(b"image")
    told = loads.tell()
    assert "cuptiEnableCallback(2, 468)" in told["fault"]
    assert len(told["modules"]) == 1
    loads = watch(library)
    library.load(None)
    assert "without its image" in loads.tell()["fault"]
    library._callback(None, RESOURCE, MODULE_LOADED, None)
    assert "could not be read" in loads.tell()["fault"]


def test_everything_that_is_told_is_bounded(library: Library) -> None:
    loads = watch(library)
    library.load(b"x" * (MAX_IMAGE_BYTES + 1))
    for number in range(MAX_MODULES):
        library.load(b"%d" % number)
    for number in range(MAX_NAMES + 5):
        library.call(DRIVER, CU_GET_PROC_ADDRESS, b"cuGetProcAddress_v2", b"n%d" % number * 100)
    told = loads.tell()
    assert len(told["modules"]) == MAX_MODULES
    assert len(told["lookups"]) <= MAX_NAMES
    assert max(map(len, told["lookups"])) <= 200
    assert told["fault"].startswith("more than ")
    assert loads.next_image() == {"image": ""}  # the large one, by its hash alone
    assert base64.b64decode(loads.next_image()["image"]) == b"0"
