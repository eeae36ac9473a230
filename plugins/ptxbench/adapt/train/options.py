"""The options of ``ptxbench train``. Importing this costs nothing, since every ``ptxbench`` command does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.defaults import RECORD_TOKENS
from ptxbench.arguments import count


class Setting(NamedTuple):
    """An option that sets a hyper-parameter of ``TrainSettings``."""

    kind: type
    default: int | float | str
    """Of ``TrainSettings``, for the help text."""
    text: str


SETTINGS: dict[str, Setting] = {
    "rank": Setting(int, 32, "of the adapter"),
    "epochs": Setting(int, 5, "passes over the records"),
    "batch": Setting(int, 2, "records of one step, over all processes"),
    "learning_rate": Setting(float, 4.65e-4, "of the first step; it falls linearly to 0"),
    "max_tokens": Setting(int, RECORD_TOKENS, "records with more are dropped and counted"),
    "checkpoint_steps": Setting(int, 50, "steps from checkpoint to checkpoint"),
    "seed": Setting(int, 0, "of the order of records and the adapter's first weights"),
    "alpha": Setting(int, 32, "the adapter is scaled by alpha / rank"),
    "dtype": Setting(str, "bfloat16", "of the base model's weights: bfloat16 or float32"),
    "attention": Setting(str, "sdpa", "implementation of attention, in the words of transformers"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them. Settings that are not given are the published ones."""
    parser.add_argument("--dataset", type=Path, required=True, metavar="DIR", help="what `ptxbench fixit build` wrote")
    parser.add_argument(
        "--base", required=True, metavar="MODEL", help="the model under adaptation: a name on the hub or a folder"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder; to resume, the old one")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--dry-run", action="store_true", help="count records, tokens and steps, and write nothing")
    parser.add_argument("--name", default="adapted", help="what the served adapter is called (default: adapted)")
    parser.add_argument("--chat-template", type=Path, metavar="FILE", help="instead of the tokenizer's own")
    parser.add_argument("--gpus", type=count, default=1, metavar="N", help="print the command that trains on N GPUs")
    parser.add_argument("--export", choices=("tinker",), help="write the training as a service's configuration")
    parser.add_argument("--renderer", metavar="NAME", help="for --export tinker: the cookbook's renderer of the model")
    parser.add_argument(
        "--target", dest="targets", action="append", metavar="LAYER", help="a layer to adapt; repeatable (all)"
    )
    parser.add_argument(
        "--offload",
        action="store_const",
        const=True,
        help="keep activations in main memory, where a GPU's is too small",
    )
    for name, (kind, default, text) in SETTINGS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar="NAME" if kind is str else "N",
            help=f"{text} (default: {default})",
        )
