"""Loads an object and calls its C functions without arguments."""

import ctypes


class _Module:
    def __init__(self, path):
        self._library = ctypes.CDLL(path)

    def __getitem__(self, symbol):
        function = getattr(self._library, symbol)

        def call(*_):
            if function() != 0:
                raise RuntimeError("the candidate failed")

        return call


def load_module(path):
    return _Module(path)


def from_dlpack(tensor):
    return tensor
