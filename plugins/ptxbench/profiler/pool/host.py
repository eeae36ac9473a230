"""The pool of this host's GPUs, as ``--profiler local`` opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.pool.nvml import open_reader
from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.pool.readings import Reader
from ptxbench.profiler.pool.slot import DeviceProfiler
from ptxbench.profiler.pool.watch import Limits
from ptxbench.profiler.visible import visible_devices


def open_pool(
    *,
    root: Path,
    stopped: Callable[[], bool] = lambda: False,
    names: list[str] | None = None,
    limits: Limits | None = None,
    wrap: Callable[[str, Reader], Reader] = lambda name, reader: reader,
) -> DevicePool:
    """One oracle for each GPU that this process may use (``names``: of these). Nothing is started yet.

    ``wrap`` may put something between NVML and the watch, as a test does that simulates an alarm. Raises
    InfrastructureError("no_device").
    """

    found = (visible_devices() if names is None else names) or [""]
    # The only one that there is needs no name, which some container may not know.
    nameless = names is None and len(found) == 1

    def open_device(name: str) -> DeviceProfiler:
        return LocalProfiler(root=root, visible=None if nameless else name)

    def reader(device: DeviceProfiler) -> Reader:
        local = cast("LocalProfiler", device)
        return wrap(local.visible or found[0], open_reader(local.uuid, lambda: local.oracle_pid))

    return DevicePool(found, open_device, reader, stopped=stopped, limits=limits)
