"""Real tools and real objects, made once per session."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import Tools, discover
from tests.unit.toolchain.parts import shared_cache


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The tools of this machine."""
    return discover()


@pytest.fixture(scope="session")
def toolchain(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """The tools of this machine with a cache of this test run."""
    return Toolchain(tools, BuildCache(shared_cache(tmp_path_factory)))


@pytest.fixture(scope="session")
def compile_host(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """Compiles C++ text with the host compiler: an object, or with ``-shared`` a shared object."""

    def build(source: str, *flags: str) -> bytes:
        folder = tmp_path_factory.mktemp("host")
        (folder / "unit.cpp").write_text(source)
        mode = () if "-shared" in flags else ("-c",)
        argv = [str(tools.host.path), "-fPIC", *mode, "unit.cpp", "-o", "unit.out", *flags]
        subprocess.run(argv, cwd=folder, check=True)
        return Path(folder, "unit.out").read_bytes()

    return build
