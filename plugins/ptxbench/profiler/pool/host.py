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

    def open_device(name: str) -> DeviceProfiler:
        return LocalProfiler(root=root, visible=name)

    def reader(device: DeviceProfiler) -> Reader:
        local = cast("LocalProfiler", device)
        return wrap(local.visible or "", open_reader(local.uuid, lambda: local.oracle_pid))

    found = visible_devices() if names is None else names
    return DevicePool(found or [""], open_device, reader, stopped=stopped, limits=limits)
