"""What code the CUDA driver loads beside the candidate, and what is looked up in it: CUPTI's callbacks.

Callbacks are enabled one by one, for events that no timed call of an honest candidate has: a launch passes none of
them, so that timing is as without.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
from typing import Any

from .messages import MAX_IMAGE_BYTES, MAX_MODULES, MAX_NAMES

# cupti_callbacks.h: CUPTI_CB_DOMAIN_DRIVER_API, _RUNTIME_API and _RESOURCE; CUPTI_CBID_RESOURCE_CONTEXT_CREATED and
# _MODULE_LOADED; CUPTI_API_ENTER.
_DRIVER, _RUNTIME, _RESOURCE = 1, 2, 3
_CONTEXT_CREATED, _MODULE_LOADED = 1, 6
_ENTER = 0
# cupti_driver_cbid.h: cuModuleLoad, ..Data, ..DataEx, ..FatBinary; cuLinkAddData, ..File, cuLinkComplete, and _v2 of
# the first two; cuLibraryLoadData, ..FromFile. cupti_runtime_cbid.h: cudaLibraryLoadData, ..FromFile.
_LOADING = {(_DRIVER, cbid) for cbid in (18, 19, 20, 21, 363, 364, 365, 382, 383, 678, 679)}
_LOADING |= {(_RUNTIME, cbid) for cbid in (470, 471)}
# cuGetProcAddress and its _v2; cudaGetDriverEntryPoint, ..ByVersion, and both for per-thread default streams. The
# name is the first parameter of each.
_LOOKUPS = {(_DRIVER, cbid) for cbid in (626, 677)}
_ENTRY_POINTS = {(_RUNTIME, cbid) for cbid in (406, 407, 468, 469)}
_MAX_NAME_BYTES = 200


class _ApiCall(ctypes.Structure):
    """The beginning of ``CUpti_CallbackData``."""

    _fields_ = (("site", ctypes.c_int), ("function", ctypes.c_char_p), ("parameters", ctypes.POINTER(ctypes.c_void_p)))


class _Module(ctypes.Structure):
    """``CUpti_ModuleResourceData``."""

    _fields_ = (("identifier", ctypes.c_uint32), ("size", ctypes.c_size_t), ("image", ctypes.c_void_p))


class _Resource(ctypes.Structure):
    """``CUpti_ResourceData``."""

    _fields_ = (("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("module", ctypes.POINTER(_Module)))


class Loads:
    """Records modules, loading calls and lookups since ``begin``. What cannot be watched is said, never left out."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._fault = ""
        self.begin()
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        self._callback = function(self._called)  # the library holds no reference
        self._subscriber = ctypes.c_void_p()
        code = library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if code != 0:
            self._fault = f"cuptiSubscribe failed with CUPTI error {code}"
            return
        self._enable(_RESOURCE, _CONTEXT_CREATED)
        self._enable(_RESOURCE, _MODULE_LOADED)
        for domain, cbid in sorted(_LOADING | _LOOKUPS | _ENTRY_POINTS):
            self._enable(domain, cbid)

    def _enable(self, domain: int, cbid: int) -> None:
        code = self._library.cuptiEnableCallback(1, self._subscriber, domain, cbid)
        if code != 0:
            self._fault = self._fault or f"cuptiEnableCallback({domain}, {cbid}) failed with CUPTI error {code}"

    def begin(self) -> None:
        """Forget everything so far: it was the process's own."""
        self._modules: list[tuple[str, int]] = []
        self._images: list[bytes] = []
        self._names: dict[str, dict[str, None]] = {"entry_points": {}, "lookups": {}, "calls": {}}
        self._lost = ""
        self._told = 0

    def _called(self, _: int | None, domain: int, cbid: int, data: int) -> None:
        # What a callback raises is forgotten, so it is kept for whoever asks.
        try:
            if (domain, cbid) == (_RESOURCE, _CONTEXT_CREATED):
                # A call ends when the context that all share is idle. Of what runs in another one nothing may be told.
                self._lost = "a CUDA context was created beside the one in which calls are timed"
            elif domain == _RESOURCE:
                self._loaded(_Resource.from_address(data))
            else:
                self._asked((domain, cbid), _ApiCall.from_address(data))
        except Exception as error:
            self._lost = f"a callback of CUPTI could not be read: {type(error).__name__}: {error}"

    def _loaded(self, resource: _Resource) -> None:
        module = resource.module.contents if resource.module else None
        if module is None or not module.image or not module.size:
            self._lost = "CUPTI told of a loaded module without its image"
        elif len(self._modules) == MAX_MODULES:
            self._lost = f"more than {MAX_MODULES} modules were loaded"
        else:
            image = ctypes.string_at(module.image, module.size)
            self._modules.append((hashlib.sha256(image).hexdigest(), len(image)))
            self._images.append(image if len(image) <= MAX_IMAGE_BYTES else b"")

    def _asked(self, event: tuple[int, int], call: _ApiCall) -> None:
        if call.site != _ENTER:
            return
        if event in _LOADING:
            self._note("calls", call.function or b"(no name)")
            return
        name = ctypes.cast(call.parameters[0], ctypes.c_char_p).value if call.parameters else None
        if not name:
            return  # nothing is found by no name; the CUDA runtime asks so once when it starts (H200, CUDA 13.0)
        self._note("lookups" if event in _LOOKUPS else "entry_points", name)

    def _note(self, kind: str, name: bytes) -> None:
        if len(self._names[kind]) == MAX_NAMES:
            self._lost = f"more than {MAX_NAMES} different {kind}"
            return
        self._names[kind][name[:_MAX_NAME_BYTES].decode("ascii", "replace")] = None

    def tell(self) -> dict[str, Any]:
        """Everything since ``begin``; images are asked for one by one."""
        self._told = 0
        modules = [{"sha256": digest, "bytes": size} for digest, size in self._modules]
        names = {kind: list(names) for kind, names in self._names.items()}
        return {"modules": modules, **names, "fault": self._fault or self._lost}

    def next_image(self) -> dict[str, Any]:
        """The image of the next module in ``tell``'s order, in base64; empty where it is too large or there is none."""
        image = self._images[self._told] if self._told < len(self._images) else b""
        self._told += 1
        return {"image": base64.b64encode(image).decode()}
