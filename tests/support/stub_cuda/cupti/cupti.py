"""Loads the stub of the library beside this package, as cupti-python loads the real one."""

import ctypes
from pathlib import Path

_library = ctypes.CDLL(str(Path(__file__).resolve().parents[1] / "libcupti.so"))


def get_timestamp():
    return 0
