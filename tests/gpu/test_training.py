"""Training on a GPU: bfloat16, the fused output layer's own kernels, and a process for each of two devices."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from ptxbench.adapt.train import trainer as training
from ptxbench.adapt.train.conversations import read_records
from ptxbench.adapt.train.lines import launch_line
from ptxbench.adapt.train.run_files import RESULT, TrainingResult
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tokens import UNSUPERVISED, encode_all, load_tokenizer
from ptxbench.cli import main
from tests.gpu.conftest import ROOT
from tests.support.small_model import write_dataset, write_small_model

torch = pytest.importorskip("torch")
for needed in ("trl", "peft", "datasets"):
    pytest.importorskip(needed)


# What these packages warn of on a GPU alone is no finding.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("dataset"))


def test_the_small_model_learns_its_repairs_in_bfloat16(base, dataset, tmp_path) -> None:
    out = tmp_path / "out"
    given = ["train", "--dataset", str(dataset), "--base", str(base), "--out", str(out)]
    assert main([*given, "--epochs", "10", "--learning-rate", "0.01"]) == 0
    result = TrainingResult.model_validate_json((out / RESULT).read_bytes())
    losses = [loss for _, loss in result.losses]
    assert losses[0] > 6
    assert sum(losses[-10:]) / 10 < 0.3
    assert result.peak_memory_bytes > 0
    assert "NVIDIA" in result.device


def test_unsupervised_tokens_get_no_gradient(base, dataset, tmp_path) -> None:
    """As on the CPU, with the kernels that only a GPU has: they score supervised positions alone."""
    tokenizer = load_tokenizer(str(base), None)
    settings = TrainSettings(dtype="float32")
    encoded = encode_all(tokenizer, read_records(dataset).conversations, settings.max_tokens)
    trainer = training.make_trainer(training.Job(str(base), settings, encoded, tokenizer, tmp_path))
    batch = trainer.data_collator([trainer.train_dataset[number] for number in (0, 7)])
    batch = {name: value.cuda() for name, value in batch.items()}
    seen = []
    model = trainer.model.get_base_model()
    hook = model.model.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    loss = trainer.compute_loss(trainer.model.train(), dict(batch), num_items_in_batch=None)
    (given,) = torch.autograd.grad(loss, [seen[0]])
    hook.remove()
    supervised = batch["labels"][:, 1:] != UNSUPERVISED
    assert torch.count_nonzero(given[:, -1]) == 0
    assert torch.count_nonzero(given[:, :-1][~supervised]) == 0
    assert (given[:, :-1][supervised].abs().amax(-1) > 0).all()


def test_two_gpus_train_what_one_does(base, dataset, tmp_path) -> None:
    """By the line that ``--gpus 2`` prints."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    results = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        given = ["--dataset", str(dataset), "--base", str(base), "--out", str(out), "--epochs", "2"]
        words = shlex.split(launch_line(given, count, "bfloat16"))
        command = [sys.executable, "-m", "accelerate.commands.launch", *words[2:]]
        devices = ",".join(str(device) for device in range(count))
        environment = os.environ | {"PYTHONPATH": str(ROOT / "plugins"), "CUDA_VISIBLE_DEVICES": devices}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        results[count] = json.loads((out / RESULT).read_text())
    assert [results[count]["processes"] for count in (1, 2)] == [1, 2]
    for (_, one), (_, two) in zip(results[1]["losses"], results[2]["losses"], strict=True):
        assert two == pytest.approx(one, rel=0.02)
