from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import device
from ptxbench.profiler.device import describe_device, device_present, driver_version
from tests.conftest import compute_capability

without_device = pytest.mark.skipif(compute_capability() is not None, reason="there is a CUDA device")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.159.04\n", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC", "580.159.04"),
        ("580.95\n", "580.95"),
        ("no version here 1.2\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_driver_version(text: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(device, "_DRIVER_FILES", (tmp_path / "missing", tmp_path / "version"))
    assert driver_version() == version


def test_driver_version_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_DRIVER_FILES", (tmp_path / "missing",))
    assert driver_version() == "unknown"


def test_presence_is_what_the_driver_says() -> None:
    assert device_present() == (compute_capability() is not None)


@without_device
def test_missing_device_is_named() -> None:
    with pytest.raises(InfrastructureError, match="expected a CUDA device") as caught:
        describe_device()
    assert caught.value.kind == "no_device"
