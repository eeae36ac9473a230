"""Benchmarks, collected only when asked for: ``pytest tests/perf -o python_files='bench_*.py'`` (``make perf``)."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import cases, gemm, profiler, reference_gemm, toolchain

__all__ = ["cases", "gemm", "profiler", "reference_gemm", "toolchain"]


def pytest_benchmark_update_machine_info(machine_info: dict[str, object]) -> None:
    """Name the device beside pytest-benchmark's own facts."""
    from ptxbench.profiler.device import device_present, driver_version

    machine_info["nvidia_driver"] = driver_version() if device_present() else "none"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.stem:
            item.add_marker(pytest.mark.gpu)
