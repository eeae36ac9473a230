"""Runs ``program.main`` where nothing of ``ptxbench`` can be imported: this folder becomes a package by itself."""

import importlib
import os.path
import sys
import types

if __name__ == "__main__":
    package = types.ModuleType("candidate_process")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[package.__name__] = package
    importlib.import_module("candidate_process.program").main()
