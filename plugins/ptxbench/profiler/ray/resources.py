"""Kinds of GPU as resources of a Ray cluster: an actor for one kind is placed only where there is such a GPU.

Ray counts GPUs, but a custom resource says which. A node tells what it has when it joins:

    ray start --address=HEAD:6379 --resources="$(python -m ptxbench.profiler.ray.resources)"
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ptxbench.errors import InputError

if TYPE_CHECKING:
    from ptxbench.cases.case import Case

PREFIX = "gpu_sm"
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (CUDA driver API)."""


def resource_of(compute_capability: tuple[int, int]) -> str:
    """Name of the resource that a GPU of this compute capability is: ``gpu_sm90`` for Hopper."""
    major, minor = compute_capability
    return f"{PREFIX}{major}{minor}"


def resource_for(case: Case) -> str:
    """What an actor must have to measure ``case``."""
    return resource_of(case.arch.compute_capability)


def kinds(resources: Mapping[str, float]) -> dict[str, int]:
    """Those of a cluster's resources that are GPUs of a kind, with their numbers."""
    return {name: int(number) for name, number in resources.items() if name.startswith(PREFIX) and number >= 1}


def counted(capabilities: Iterable[tuple[int, int]]) -> dict[str, int]:
    """Compute capabilities of one node as resources. Raises InputError for more than one kind: Ray counts the node's
    GPUs without a kind, so that an actor for one could be given another."""
    found = dict(sorted(Counter(map(resource_of, capabilities)).items()))
    if len(found) > 1:
        told = ", ".join(f"{number} {kind}" for kind, number in found.items())
        raise InputError(
            f"expected GPUs of one kind on a node, found {told}; name those of one kind in CUDA_VISIBLE_DEVICES, for "
            "`ray start` too"
        )
    return found


def capabilities_here() -> list[tuple[int, int]]:
    """Compute capability of each GPU that this process may use, as the driver tells; empty without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found: list[tuple[int, int]] = []
    for index in range(count.value):
        told: list[int] = []
        for attribute in (_MAJOR, _MINOR):
            if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
                return found
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
                return found
            told.append(value.value)
        found.append((told[0], told[1]))
    return found


def main() -> int:
    """Print this node's resources. Returns the exit status."""
    try:
        sys.stdout.write(json.dumps(counted(capabilities_here())) + "\n")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
