"""A small random model learns 20 repairs on a processor core, from their last messages alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ptxbench.adapt.train import trainer as training
from ptxbench.adapt.train.conversations import read_records
from ptxbench.adapt.train.run_files import ADAPTER, CHECKPOINTS, RESULT, TrainingResult, read_training
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tokens import UNSUPERVISED, encode_all, load_tokenizer
from ptxbench.cli import main
from ptxbench.errors import InfrastructureError
from tests.support.small_model import write_dataset, write_small_model

torch = pytest.importorskip("torch")
for needed in ("trl", "peft", "datasets"):
    pytest.importorskip(needed)

RECORDS = 20
EPOCHS = 8
RATE = 1e-2
"""Random weights need larger steps than a model that can already write."""
OPTIONS = ["--epochs", str(EPOCHS), "--learning-rate", str(RATE), "--dtype", "float32"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Matrices this small cost less than waking a second thread does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("dataset"), RECORDS)


def job(base, dataset, out, **settings):
    tokenizer = load_tokenizer(str(base), None)
    found = TrainSettings(**{"epochs": EPOCHS, "learning_rate": RATE, "dtype": "float32", **settings})
    encoded = encode_all(tokenizer, read_records(dataset).conversations, found.max_tokens)
    return training.Job(str(base), found, encoded, tokenizer, out)


@pytest.fixture(scope="module")
def trained(base, dataset, tmp_path_factory):
    """The whole command, once."""
    out = tmp_path_factory.mktemp("trained") / "out"
    assert main(["train", "--dataset", str(dataset), "--base", str(base), "--out", str(out), *OPTIONS]) == 0
    return out


def test_the_loss_of_supervised_tokens_falls(trained) -> None:
    result = TrainingResult.model_validate_json((trained / RESULT).read_bytes())
    losses = [loss for _, loss in result.losses]
    assert result.steps == len(losses) == RECORDS // 2 * EPOCHS
    assert losses[0] > 6, "a random model knows nothing"
    assert sum(losses[-10:]) / 10 < 0.2
    assert read_training(trained).steps == result.steps


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_what_was_trained_answers_right(base, dataset, trained) -> None:
    """The adapter, loaded as a server loads it, writes the repairs; the base model does not."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    encoded = job(base, dataset, trained).encoded.kept

    def right(model) -> float:
        with torch.no_grad():
            hits = [
                (model(torch.tensor([one.input_ids])).logits[0, :-1].argmax(-1) == torch.tensor(one.labels[1:]))[
                    torch.tensor(one.labels[1:]) != UNSUPERVISED
                ]
                for one in encoded
            ]
        return float(torch.cat(hits).float().mean())

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    assert right(model) < 0.1
    assert right(PeftModel.from_pretrained(model, trained / ADAPTER).eval()) > 0.95


def test_unsupervised_tokens_get_no_gradient(base, dataset, tmp_path) -> None:
    """The gradient that the trainer's loss sends into the output layer, position by position.

    It is the gradient of the logits, times that layer's weights: exactly 0 where the next token is not supervised, and
    elsewhere what plain cross entropy over the full logits gives.
    """
    trainer = training.make_trainer(job(base, dataset, tmp_path))
    trainer.model.train()
    batch = trainer.data_collator([trainer.train_dataset[number] for number in (0, 7)])
    labels = batch["labels"][:, 1:]
    model = trainer.model.get_base_model()
    seen = []
    norm = model.model.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    loss = trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=None)
    (given,) = torch.autograd.grad(loss, [seen[0]])
    norm.remove()

    supervised = labels != UNSUPERVISED
    assert torch.count_nonzero(given[:, -1]) == 0, "the last position predicts nothing"
    given = given[:, :-1]
    assert supervised.any()
    assert (~supervised).any()
    assert torch.count_nonzero(given[~supervised]) == 0
    assert (given[supervised].abs().amax(-1) > 0).all()

    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    plain = torch.nn.functional.cross_entropy(logits[supervised], labels[supervised])
    (of_logits,) = torch.autograd.grad(plain, [logits])
    assert torch.count_nonzero(of_logits[~supervised]) == 0
    torch.testing.assert_close(loss.detach(), plain.detach())
    torch.testing.assert_close(given, of_logits @ model.lm_head.weight, rtol=1e-3, atol=1e-6)


def test_only_adapters_are_trained(base, dataset, tmp_path) -> None:
    trainer = training.make_trainer(job(base, dataset, tmp_path))
    trained = [name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad]
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in trained}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_published_settings_reach_the_trainer(base, dataset, tmp_path) -> None:
    tokenizer = load_tokenizer(str(base), None)
    encoded = encode_all(tokenizer, read_records(dataset).conversations, 65_536)
    trainer = training.make_trainer(
        training.Job(str(base), TrainSettings(dtype="float32"), encoded, tokenizer, tmp_path)
    )
    arguments = trainer.args
    assert arguments.num_train_epochs == 5
    assert arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps == 2
    assert arguments.learning_rate == 4.65e-4
    assert (arguments.lr_scheduler_type, arguments.get_warmup_steps(100)) == ("linear", 0)
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon) == (0.9, 0.95, 1e-8)
    assert (arguments.weight_decay, arguments.max_grad_norm) == (0.0, 0.0)
    assert (arguments.seed, arguments.save_steps, arguments.max_length) == (0, 50, None)
    lora = trainer.model.peft_config["default"]
    assert (lora.r, lora.lora_alpha, lora.lora_dropout) == (32, 32, 0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without a GPU does")
def test_activations_of_a_cpu_are_in_main_memory_already(base, dataset, tmp_path) -> None:
    assert not training.make_trainer(job(base, dataset, tmp_path, offload=True)).args.activation_offloading


def test_a_full_gpu_is_told_as_such(base, dataset, tmp_path) -> None:
    from transformers import TrainerCallback

    class Full(TrainerCallback):  # type: ignore[misc]  # carries no types
        def on_step_begin(self, *_, **__):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")

    with pytest.raises(InfrastructureError, match=r"Tried to allocate 8.00 GiB.*--offload") as caught:
        training.train(job(base, dataset, tmp_path), resume=False, callbacks=[Full()])
    assert caught.value.kind == "out_of_device_memory"


def test_a_stopped_training_goes_on_to_the_same_adapter(base, dataset, trained, tmp_path) -> None:
    from safetensors.torch import load_file
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc]  # carries no types
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step >= 13

    short = {"epochs": 2, "checkpoint_steps": 6}
    whole, broken = (job(base, dataset, tmp_path / name, **short) for name in ("whole", "broken"))
    assert training.train(whole, resume=False) is not None
    assert training.train(broken, resume=False, callbacks=[Stop()]) is None
    assert not (broken.out / ADAPTER).exists()
    for number, state in ((14, None), (15, '{"glo')):  # stopped while they were written, where the state comes last
        torn = broken.out / CHECKPOINTS / f"checkpoint-{number}"
        torn.mkdir()
        if state is not None:
            (torn / "trainer_state.json").write_text(state)
    result = training.train(broken, resume=True)
    assert result is not None
    assert result.resumed_at == 12 or result.resumed_at == 13
    assert result.steps == 20
    one, other = (load_file(each.out / ADAPTER / "adapter_model.safetensors") for each in (whole, broken))
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)


def test_resuming_refuses_another_training(base, dataset, trained, capsys) -> None:
    command = ["train", "--dataset", str(dataset), "--base", str(base), "--out", str(trained)]
    assert main([*command, *OPTIONS]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*command, *OPTIONS, "--resume", "--rank", "8"]) == 2
    assert "settings.rank" in capsys.readouterr().err
    assert json.loads((trained / "training.json").read_text())["settings"]["rank"] == 32


@pytest.mark.parametrize(("world", "cpu", "placed"), [("", False, {"": 0}), ("2", False, None), ("", True, None)])
def test_a_process_puts_its_model_on_one_gpu(monkeypatch, world, cpu, placed) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world:
        monkeypatch.setenv("WORLD_SIZE", world)
    assert training._placed(cpu=cpu) == placed


@pytest.mark.parametrize(("seen", "used"), [(0, 0), (1, 1), (8, 1)])
def test_other_gpus_are_left_alone(seen, used) -> None:
    """transformers would copy the model to each that it sees, which TRL refuses."""
    assert training._on_one_gpu(SimpleNamespace(n_gpu=seen, _n_gpu=seen))._n_gpu == used
