"""The GPU of this machine, if there is one, and the evidence of what ran on it."""

from __future__ import annotations

import ctypes
import datetime
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ptxbench.packs.pack import open_pack
from ptxbench.packs.source import read_header
from ptxbench.packs.validation import PackEvidence, gather, load_claims

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


class Properties(NamedTuple):
    """Of device 0."""

    name: str
    compute_capability: tuple[int, int]
    driver: str
    cuda: str


@cache
def properties() -> Properties | None:
    """Device 0, or None without a driver or a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor, version = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Properties(name.value.decode(), (major.value, minor.value), _driver_version(), cuda)


def write_evidence(folder: Path, root: Path, arch: str, passed: Mapping[str, bool], found: Properties) -> Path:
    """Write ``packs_<arch>.json``: what ran, on which device, and the hash of each function that it executed."""
    opened = open_pack(root, arch)
    definitions = [definition for path in opened.headers() for definition in read_header(path).definitions]
    evidence = PackEvidence(
        device=found.name,
        driver=found.driver,
        cuda=found.cuda,
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        functions=gather(passed, load_claims(opened.folder), definitions),
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"packs_{arch}.json"
    path.write_text(evidence.model_dump_json(indent=1) + "\n")
    return path


def _driver_version() -> str:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    version = ctypes.create_string_buffer(80)
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(version, len(version)):
        return "unknown"
    return version.value.decode()
