"""The training itself: TRL's supervised trainer with a LoRA adapter of PEFT."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.adapt.train.run_files import ADAPTER, CHECKPOINTS, TrainingResult
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tokens import EncodedSet
from ptxbench.errors import InfrastructureError, InputError

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate")


class Job(NamedTuple):
    """What is trained on what."""

    base: str
    settings: TrainSettings
    encoded: EncodedSet
    tokenizer: Any
    out: Path
    model: Any = None
    """The base model where it is loaded already; by default it is loaded by its name."""


def make_trainer(job: Job, callbacks: Sequence[Any] = (), say: Callable[[str], None] = lambda _: None) -> Any:  # noqa: ANN401
    """TRL's trainer for ``job``, ready to train.

    Raises InputError where the base model cannot be loaded, or the batch cannot be shared by the processes.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTTrainer

    arguments = _on_one_gpu(_arguments(job))
    lora = LoraConfig(
        r=job.settings.rank,
        lora_alpha=job.settings.alpha,
        lora_dropout=0.0,
        target_modules=_targets(job.settings),
        task_type="CAUSAL_LM",
    )
    rows = [{"input_ids": one.input_ids, "labels": one.labels} for one in job.encoded.kept]
    try:
        with _no_old_names():
            trainer = SFTTrainer(
                job.base if job.model is None else job.model,
                args=arguments,
                train_dataset=Dataset.from_list(rows),
                processing_class=job.tokenizer,
                peft_config=lora,
                callbacks=[*callbacks, _telling(say)],
            )
    except (OSError, ValueError) as error:
        raise InputError(
            f"--base {job.base}: expected a causal language model that can get an adapter, found: {error}; name "
            "another, or other --targets"
        ) from error
    trainer.remove_callback(PrinterCallback)
    return trainer


def train(
    job: Job, *, resume: bool, callbacks: Sequence[Any] = (), say: Callable[[str], None] = lambda _: None
) -> TrainingResult | None:
    """Train, and write the adapter. Returns the result, or None where a callback stopped it before its end.

    ``resume`` goes on from the last checkpoint, if there is one. Raises InputError as ``make_trainer`` does,
    InfrastructureError where the GPU's memory is too small.
    """
    import torch

    try:
        return _trained(job, callbacks, say, resume=resume)
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(
            "out_of_device_memory",
            f"expected a GPU with room for the model and a record, found: {error}; train in another folder with "
            "--offload (if it was not given), a smaller --max-tokens or a smaller --base",
        ) from error


def _trained(job: Job, callbacks: Sequence[Any], say: Callable[[str], None], *, resume: bool) -> TrainingResult | None:
    import torch

    trainer = make_trainer(job, callbacks, say)
    checkpoint = _last_checkpoint(job.out / CHECKPOINTS) if resume else None
    cuda = trainer.args.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    with _no_old_names():
        trainer.train(resume_from_checkpoint=checkpoint)
    seconds = time.perf_counter() - started
    if trainer.state.global_step < trainer.state.max_steps:
        return None
    trainer.save_model(str(job.out / ADAPTER))
    return _result(job, trainer, checkpoint, seconds)


def _last_checkpoint(folder: Path) -> str | None:
    """The last one that was written whole: its state comes last, and a stop may have come first."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    for path in sorted(found, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        with suppress(OSError, ValueError):
            json.loads((path / "trainer_state.json").read_bytes())
            return str(path)
    return None


def processes() -> int:
    """How many processes a launcher started for this training; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def accumulation(settings: TrainSettings) -> int:
    """Records of each step that one process has. Raises InputError where the batch cannot be shared."""
    count = processes()
    if settings.batch % count:
        raise InputError(
            f"expected a number of processes that divides the batch of {settings.batch} records, found {count}; start "
            "fewer, or raise --batch, which is then another training"
        )
    return settings.batch // count


def _arguments(job: Job) -> Any:  # noqa: ANN401 - TRL's own
    import torch
    from trl import SFTConfig

    settings = job.settings
    cpu = not torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(job.out / CHECKPOINTS),
        # One record at a time on a GPU: nothing is padded, and a batch is as large as the longest record.
        per_device_train_batch_size=1,
        gradient_accumulation_steps=accumulation(settings),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0,
        optim="adamw_torch",
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        adam_epsilon=settings.epsilon,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_gradient_norm,
        seed=settings.seed,
        data_seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.checkpoint_steps,
        logging_steps=1,
        logging_nan_inf_filter=False,
        bf16=settings.dtype == "bfloat16" and not cpu,
        use_cpu=cpu,
        dataloader_pin_memory=not cpu,
        # Records are tokens and labels already, and none is cut.
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
        model_init_kwargs=None
        if job.model is not None
        else {"dtype": settings.dtype, "attn_implementation": settings.attention, "device_map": _placed(cpu=cpu)},
        # Without a GPU they are in main memory already, and TRL's offloading looks for a device that is not there.
        activation_offloading=settings.offload and not cpu,
        disable_tqdm=True,
        report_to="none",
        **{_checkpointing(SFTConfig): True},
    )


def _placed(*, cpu: bool) -> dict[str, int] | None:
    """Where the model goes: TRL would spread it over all GPUs that it sees. With a launcher TRL places it."""
    return None if cpu or processes() > 1 else {"": 0}


def _on_one_gpu(arguments: Any) -> Any:  # noqa: ANN401 - TRL's own
    """A process trains on one GPU, also where it sees several: more take a process each (``--gpus``)."""
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # as transformers does where a model is placed already; there is no public way
    return arguments


def _checkpointing(config: Any) -> str:  # noqa: ANN401 - TRL's own
    """What transformers calls it: another name before 5.20."""
    now = "activation_checkpointing"
    return now if now in {field.name for field in dataclasses.fields(config)} else "gradient_checkpointing"


def _targets(settings: TrainSettings) -> str | list[str]:
    return settings.targets[0] if settings.targets == ("all-linear",) else list(settings.targets)


def _result(job: Job, trainer: Any, checkpoint: str | None, seconds: float) -> TrainingResult:  # noqa: ANN401
    import torch

    begun = int(checkpoint.rpartition("-")[2]) if checkpoint else 0
    done = trainer.state.global_step - begun
    tokens = job.encoded.tokens * job.settings.epochs * done / max(1, trainer.state.global_step)
    cuda = trainer.args.device.type == "cuda"
    losses = tuple((int(row["step"]), float(row["loss"])) for row in trainer.state.log_history if "loss" in row)
    return TrainingResult(
        steps=trainer.state.global_step,
        resumed_at=begun,
        losses=losses,
        seconds=round(seconds, 3),
        tokens_per_s=round(tokens / seconds, 1) if done else 0.0,
        processes=processes(),
        device=torch.cuda.get_device_name() if cuda else "cpu",
        peak_memory_bytes=torch.cuda.max_memory_allocated() if cuda else 0,
        versions={name: version(name) for name in PACKAGES},
    )


def _telling(say: Callable[[str], None]) -> Any:  # noqa: ANN401 - transformers' own
    """A callback that says how far it is, in one line for each step."""
    from transformers import TrainerCallback

    class Telling(TrainerCallback):  # type: ignore[misc]  # carries no types
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:  # noqa: ANN401
            del args, control
            if state.is_world_process_zero and "loss" in logs:
                say(f"step {state.global_step} of {state.max_steps}: loss {float(logs['loss']):.4f}")

    return Telling()


def _no_old_names() -> warnings.catch_warnings[None]:
    """TRL and PEFT ask transformers by names that it has renamed; users can do nothing about it."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)
