"""Raw device memory as tensors that speak DLPack, without torch."""

from __future__ import annotations

import ctypes
import math

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
