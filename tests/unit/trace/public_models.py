"""FlashInfer-Bench's own models of the schema, where the package is installed; ``make test`` does, without its needs.

Importing the package imports torch and FlashInfer. Its models alone need pydantic, so they are imported under empty
stand-ins of the packages that hold them.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PACKAGE = "flashinfer_bench"


@cache
def load() -> SimpleNamespace:
    """Their ``Definition``, ``Solution``, ``Trace`` and ``Workload``. Skips the test where there are none."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        pytest.skip("needs flashinfer-bench, installed without dependencies (make test)")
    folder = Path(found.origin).parent
    before = set(sys.modules)
    try:
        for name, path in ((PACKAGE, folder), (f"{PACKAGE}.data", folder / "data")):
            module = ModuleType(name)
            module.__path__ = [str(path)]
            sys.modules[name] = module
        names = ("Definition", "Solution", "Trace", "Workload")
        models = {name: getattr(import_module(f"{PACKAGE}.data.{name.lower()}"), name) for name in names}
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == PACKAGE:
                del sys.modules[name]
    return SimpleNamespace(**models)
