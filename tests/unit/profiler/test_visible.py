"""The caller's devices, from its own list or from nvidia-smi: a stand-in, since its text is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.profiler import visible
from ptxbench.profiler.device import device_count
from ptxbench.profiler.visible import visible_devices

FIRST, SECOND = "GPU-5e1b7a9c-0000-1111-2222-333344445555", "GPU-6e1b7a9c-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (" 3, GPU-a ,", ["3", "GPU-a"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["1"]),
        ("NoDevFiles", []),
        ("0,0,1", ["0", "1"]),
        ("MIG-c6d4f1ef-42e4-5de3,MIG-GPU-5e1b7a9c/1/0", ["MIG-c6d4f1ef-42e4-5de3", "MIG-GPU-5e1b7a9c/1/0"]),
        (f"{SECOND},{FIRST}", [SECOND, FIRST]),
    ],
)
def test_the_callers_own_list_wins_as_far_as_cuda_reads_it(listed: str, names: list[str]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": listed}) == names


def smi(folder: Path, text: str, status: int = 0) -> None:
    (folder / "text").write_text(text)
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n/bin/cat {folder}/text\nexit {status}\n")
    (folder / "nvidia-smi").chmod(0o755)


def test_without_a_list_each_gpu_or_each_instance_of_one_that_is_cut_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    smi(
        tmp_path,
        f"GPU 0: NVIDIA H200 (UUID: {FIRST})\n"
        f"GPU 1: NVIDIA H200 (UUID: {SECOND})\n"
        "  MIG 3g.71gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n"
        "  MIG 1g.18gb     Device  1: (UUID: MIG-d6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n",
    )
    assert visible_devices({}) == [
        FIRST,
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-d6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
    ]


def test_without_nvidia_smi_the_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_devices({}) == [str(index) for index in range(device_count())]
    monkeypatch.setattr(visible, "device_count", lambda: 2)
    assert visible_devices({}) == ["0", "1"]
    smi(tmp_path, "NVIDIA-SMI has failed\n", 9)
    assert visible_devices({}) == ["0", "1"]
