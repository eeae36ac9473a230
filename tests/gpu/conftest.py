"""Fixtures of the tests that need a Hopper GPU. Every test in this folder carries the ``gpu`` mark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.cases import Case, find_root, load_suite

if TYPE_CHECKING:
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

HERE = Path(__file__).parent
ROOT = find_root(HERE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def profiler() -> Iterator[LocalProfiler]:
    """One local profiler for the whole session, as a benchmark run has."""
    from ptxbench.profiler.local import LocalProfiler

    profiler = LocalProfiler(root=ROOT)
    yield profiler
    profiler.close()


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The toolchain with the user's own build cache: building is not what these tests are about."""
    from ptxbench.toolchain import Toolchain

    return Toolchain.discover()


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    """The primary suite's cases on Hopper, by name."""
    return {case.name: case for case in load_suite(ROOT, "primary").cases("h100")}


@pytest.fixture(scope="session")
def gemm(cases: dict[str, Case]) -> Case:
    return cases["gemm_n7168_k5120"]


@pytest.fixture(scope="session")
def reference_gemm() -> str:
    return (ROOT / "generated/reference/h100/gemm_n7168_k5120/kernel.cu").read_text()
