"""pytest-xdist across real GPUs: one worker for each, by whatever names the caller has for them."""

from __future__ import annotations

import os

import pytest

from ptxbench.profiler.visible import visible_devices
from tests.gpu.conftest import ROOT

pytestmark = pytest.mark.skipif(len(visible_devices()) < 2, reason="needs two GPUs")

WHERE = """
import os
from pathlib import Path

def test_where(turn, request):
    words = [turn.key.trajectory_id, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["PYTEST_XDIST_WORKER"]]
    with Path(request.config.rootpath, "where").open("a") as file:
        file.write(" ".join(words) + "\\n")
    assert turn.verdict.correct
    assert turn.evidence_origin == "measured"
    if {crash}:
        try:
            Path(request.config.rootpath, "crashed").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def benchmark_checkout(checkout: pytest.Pytester) -> pytest.Pytester:
    (checkout.path / "generated" / "reference").symlink_to(ROOT / "generated" / "reference")
    return checkout


def uuids() -> list[str]:
    """The first two devices by UUID, the second first."""
    import pynvml

    pynvml.nvmlInit()
    names = visible_devices()[:2]
    found = []
    for name in names:
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)
        )
        found.append(str(pynvml.nvmlDeviceGetUUID(handle)))
    return found[::-1]


@pytest.mark.parametrize("crash", [False, True], ids=["undisturbed", "crash"])
def test_auto_is_one_worker_for_each_gpu(
    benchmark_checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    names = uuids()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
    monkeypatch.delenv("PTXBENCH_CACHE", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    # This process may itself be a worker.
    for variable in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        monkeypatch.delenv(variable)
    benchmark_checkout.makepyfile(test_own=WHERE.format(crash=crash))
    result = benchmark_checkout.runpytest_subprocess(
        "-p", "no:cacheprovider", "-m", "h100", "--profiler", "local", "-n", "auto", "--run", "auto", "test_own.py"
    )
    result.assert_outcomes(passed=5)
    lines = [line.split() for line in (benchmark_checkout.path / "where").read_text().splitlines()]
    placed = {(device, worker) for _, device, worker in lines}
    if crash:
        result.stdout.fnmatch_lines(["*5 passed, 1 rerun*"])
        assert {device for device, _ in placed} == set(names)
        assert len({worker for _, worker in placed}) == 3, "the replacement has a name of its own"
        assert len(placed) == 3, "and the GPU of its predecessor"
    else:
        assert placed == {(names[0], "gw0"), (names[1], "gw1")}
    trajectories: dict[str, set[str]] = {}
    for trajectory, device, _ in lines:
        trajectories.setdefault(trajectory, set()).add(device)
    assert len(trajectories) == 5
    assert all(len(devices) == 1 for devices in trajectories.values())
