"""``ptxbench train`` with a process for each of two devices, as ``accelerate launch`` starts them; here on the CPU.

Among the benchmarks since it starts torch three times; tests/gpu has the same with GPUs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.small_model import write_dataset, write_small_model

pytest.importorskip("torch")
pytest.importorskip("trl")

SHORT = ["--dtype", "float32", "--epochs", "1", "--learning-rate", "0.01"]


def test_two_processes_train_what_one_does(tmp_path) -> None:
    """Each has half of every batch. The adapters are equal but for the order of additions."""
    import torch
    from safetensors.torch import load_file

    from ptxbench.cli import main

    base, dataset = write_small_model(tmp_path / "base"), write_dataset(tmp_path / "dataset", 8)
    given = ["train", "--dataset", str(dataset), "--base", str(base), *SHORT]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert main([*given, "--out", str(tmp_path / "one")]) == 0
    finally:
        torch.set_num_threads(threads)
    told = _together([*given, "--out", str(tmp_path / "two")], tmp_path)
    assert [text.count("8 records, ") for text in told] == [1, 0], "the first process speaks"
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert [result["processes"] for result in results] == [1, 2]
    assert [result["steps"] for result in results] == [4, 4]
    one, two = (load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


def _together(arguments: list[str], folder: Path) -> list[str]:
    """Run the command in two processes with what a launcher tells each; returns what they printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"PYTHONPATH": str(ROOT / "plugins"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    common |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "ptxbench", *arguments],
            env=os.environ | common | {"RANK": rank, "LOCAL_RANK": rank},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        ended = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, err) in zip(running, ended, strict=True):
        assert process.returncode == 0, err
    return [out for out, _ in ended]
