"""Fixtures of the project's own tests. They are run as ``python -m pytest tests`` from the checkout."""

import ctypes
import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# pytester forgets what a session in this process imported. What has state of its own must not come twice: two copies of
# a library do not know each other's classes. httpx imports httpcore at its first use and keeps a table of its errors.
for _library in ("yaml", "httpx", "httpcore", "anyio._backends._asyncio"):
    with suppress(ImportError):
        import_module(_library)

# How long an example takes says what else the machine does, so no test fails for it. Where a change is judged (.ci/run)
# the examples are always the same: a new one that fails must not stop another change.
settings.register_profile(
    "ptxbench", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("ptxbench")

# Of every Ray that tests start or reach. Left to itself, Ray turns its token on in some processes and not in others, by
# what it finds in the home folder, and keeps for a process what it found first; pytester's processes have another home.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-the-tests-" + "7" * 51}

ROOT = Path(__file__).parents[1]
HOPPER = (9, 0)


@cache
def compute_capability() -> tuple[int, int] | None:
    """Compute capability of the first visible device, asked of the driver alone; None without a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    found = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
            return None
        found.append(value.value)
    return found[0], found[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``gpu`` where there is no Hopper device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and compute_capability() != HOPPER:
        found = compute_capability()
        reason = f"needs a device of compute capability 9.0, found {found or 'none'}"
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build cache of this test session, all its workers included, so that what one test built another finds."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "build-cache"


@pytest.fixture
def checkout(pytester: pytest.Pytester, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A temporary checkout that shares this one's data and benchmark, with a ``generated`` folder of its own."""
    monkeypatch.setenv("PTXBENCH_CACHE", str(build_cache))
    # Behind ours, what the caller has: his packages may lie there.
    path = [str(ROOT / "plugins"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    for name in ("cases", "knowledge_packs", "ptx_tests", "plugins", "conftest.py", "pyproject.toml"):
        (pytester.path / name).symlink_to(ROOT / name)
    (pytester.path / "generated").mkdir()
    return pytester


@pytest.fixture
def judged(checkout: pytest.Pytester) -> pytest.Pytester:
    """A checkout whose reference solutions are small and have evidence that is made up."""
    # Late, since only these tests need a compiler.
    from tests.acceptance.parts import add_references

    add_references(checkout.path, ROOT)
    return checkout
