"""The same training as a configuration of the Tinker cookbook, for who trains on that service.

Names are those of ``tinker_cookbook.supervised.train.Config`` (tinker-cookbook 0.6) as its command line takes them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from ptxbench.adapt.train.conversations import Conversation
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.errors import InputError
from ptxbench.files import write_whole

CONFIG = "tinker.json"
CONVERSATIONS = "conversations.jsonl"
MODULE = "tinker_cookbook.supervised.train"
_DATASET = "dataset_builder"
_COMMON = f"{_DATASET}.common_config"


def tinker_arguments(base: str, settings: TrainSettings, renderer: str, out: Path) -> dict[str, str | int | float]:
    """The cookbook's arguments for these settings; records and logs are in ``out``.

    Raises InputError for settings that the service decides itself.
    """
    fixed = {"alpha": 32, "weight_decay": 0.0, "max_gradient_norm": 0.0, "targets": ("all-linear",)}
    other = [name for name, value in fixed.items() if getattr(settings, name) != value]
    if other:
        raise InputError(
            f"--export tinker: expected settings that the service takes, found others of {', '.join(other)}, which it "
            f"fixes; leave {'it' if len(other) == 1 else 'them'} out"
        )
    return {
        "log_path": str(out / "log"),
        "model_name": base,
        "recipe_name": "ptxbench",
        "renderer_name": renderer,
        _DATASET: "tinker_cookbook.supervised.data:FromConversationFileBuilder",
        f"{_DATASET}.file_path": str(out / CONVERSATIONS),
        f"{_DATASET}.shuffle_seed": settings.seed,
        f"{_COMMON}.model_name_for_tokenizer": base,
        f"{_COMMON}.renderer_name": renderer,
        f"{_COMMON}.max_length": settings.max_tokens,
        f"{_COMMON}.batch_size": settings.batch,
        f"{_COMMON}.train_on_what": "last_assistant_message",
        "learning_rate": settings.learning_rate,
        "lr_schedule": "linear",
        "num_epochs": settings.epochs,
        "lora_rank": settings.rank,
        "save_every": settings.checkpoint_steps,
        "adam_beta1": settings.beta1,
        "adam_beta2": settings.beta2,
        "adam_eps": settings.epsilon,
    }


def tinker_line(arguments: dict[str, str | int | float]) -> str:
    """The command that trains so."""
    return shlex.join(["python", "-m", MODULE, *(f"{name}={value}" for name, value in arguments.items())])


def export_tinker(
    base: str, settings: TrainSettings, renderer: str, kept: Iterable[Conversation], out: Path
) -> dict[str, str | int | float]:
    """Write configuration and conversations into ``out``; returns the configuration.

    Only records within the token limit are written: the cookbook would cut longer ones. Raises InputError for a folder
    in use.
    """
    arguments = tinker_arguments(base, settings, renderer, out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: expected a new or empty folder, found something there; name another")
    lines = "".join(f"{json.dumps({'messages': one.messages}, ensure_ascii=False)}\n" for one in kept)
    try:
        write_whole(out / CONVERSATIONS, lines.encode())
        write_whole(out / CONFIG, (json.dumps(arguments, indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(f"--out {out}: expected a folder that can be written, found: {error.strerror}") from error
    return arguments
