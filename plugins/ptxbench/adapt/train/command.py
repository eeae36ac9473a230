"""``ptxbench train``: an adapter for the base model from a dataset of repairs, or the same training for a service."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from ptxbench.adapt.train.conversations import Records, read_records
from ptxbench.adapt.train.lines import launch_line, serve_lines
from ptxbench.adapt.train.options import SETTINGS
from ptxbench.adapt.train.run_files import ADAPTER, DroppedRecord, Training, claim, write_result
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tinker import export_tinker, tinker_line
from ptxbench.adapt.train.tokens import EncodedSet, encode_all, load_tokenizer
from ptxbench.errors import InputError
from ptxbench.records.base import first_fault

COUNTING = ("transformers", "jinja2")
TRAINING = (*COUNTING, "accelerate", "datasets", "peft", "torch", "trl")
"""Packages that are needed to count tokens, and to train."""
_DROPPED_SHOWN = 5


def run(options: argparse.Namespace, say: Callable[[str], None] | None = None) -> int:
    """Carry out ``ptxbench train``. Raises InputError for what cannot be trained."""
    say = say or _print
    settings = _settings(options)
    if options.gpus > 1:
        say(launch_line(_arguments(sys.argv), options.gpus, settings.dtype))
        return 0
    records = read_records(options.dataset)
    counting = options.dry_run or options.export is not None
    _need(COUNTING if counting else TRAINING)
    tokenizer = load_tokenizer(options.base, options.chat_template)
    encoded = encode_all(tokenizer, records.conversations, settings.max_tokens)
    training = identify(options.base, settings, records, encoded, tokenizer)
    first = int(os.environ.get("RANK", "0")) == 0
    if first:
        for line in told(training):
            say(line)
    if options.dry_run:
        return 0
    if options.export == "tinker":
        return _export(options, settings, records, encoded, say)
    if first:
        claim(options.out, training, resume=options.resume)
    return _train(options, settings, encoded, tokenizer, say if first else lambda _: None, first=first)


def identify(
    base: str,
    settings: TrainSettings,
    records: Records,
    encoded: EncodedSet,
    tokenizer: Any,  # noqa: ANN401 - transformers' own
) -> Training:
    """Which training this is."""
    return Training(
        base=base,
        settings=settings,
        records_sha256=records.sha256,
        template_sha256=hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest(),
        records=len(encoded.kept),
        dropped=tuple(DroppedRecord(name=one.name, tokens=one.tokens) for one in encoded.dropped),
        tokens=encoded.tokens,
        supervised_tokens=encoded.supervised,
    )


def told(training: Training) -> list[str]:
    """What will be trained, in lines."""
    settings = training.settings
    lines = [
        f"{training.records} records, {training.tokens:,} tokens, {training.supervised_tokens:,} of them supervised",
        f"{training.steps} steps: {settings.epochs} epochs, {settings.batch} records each, a checkpoint every "
        f"{settings.checkpoint_steps}",
    ]
    if training.dropped:
        shown = ", ".join(f"{one.name} ({one.tokens:,})" for one in training.dropped[:_DROPPED_SHOWN])
        more = len(training.dropped) - _DROPPED_SHOWN
        lines.insert(
            1,
            f"{len(training.dropped)} records dropped, of more than {settings.max_tokens:,} tokens: {shown}"
            f"{f' and {more} more' if more > 0 else ''}",
        )
    return lines


def _train(
    options: argparse.Namespace,
    settings: TrainSettings,
    encoded: EncodedSet,
    tokenizer: Any,  # noqa: ANN401
    say: Callable[[str], None],
    *,
    first: bool,
) -> int:
    from ptxbench.adapt.train.trainer import Job, train

    result = train(Job(options.base, settings, encoded, tokenizer, options.out), resume=options.resume, say=say)
    if result is None or not first:
        return 0
    write_result(options.out, result)
    memory = f", {result.peak_memory_bytes / 2**30:.1f} GiB of {result.device}" if result.peak_memory_bytes else ""
    say(f"{result.steps} steps in {result.seconds:,.0f} s, {result.tokens_per_s:,.0f} tokens/s{memory}")
    adapter = options.out / ADAPTER
    say(f"Adapter: {adapter}")
    for line in serve_lines(options.base, adapter, options.name, settings.rank):
        say(line)
    return 0


def _export(
    options: argparse.Namespace,
    settings: TrainSettings,
    records: Records,
    encoded: EncodedSet,
    say: Callable[[str], None],
) -> int:
    if not options.renderer:
        raise InputError(
            "--export tinker: expected the cookbook's renderer for the model, found none; add --renderer NAME, for "
            "example qwen3_5 (tinker_cookbook.model_info.get_recommended_renderer_name tells it)"
        )
    names = {one.name for one in encoded.kept}
    kept = [one for one in records.conversations if one.name in names]
    say(tinker_line(export_tinker(options.base, settings, options.renderer, kept, options.out)))
    return 0


def _need(packages: Sequence[str]) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"expected the packages that training needs, found no {', '.join(missing)}; install them with: pip install "
            "'ptxbench[train]'"
        )


def _settings(options: argparse.Namespace) -> TrainSettings:
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    if options.offload:
        given["offload"] = True
    if options.targets:
        given["targets"] = tuple(options.targets)
    try:
        return TrainSettings(**given)
    except ValidationError as error:
        raise InputError(f"expected settings that can be, found {first_fault(error)}") from error


def _arguments(command_line: Sequence[str]) -> list[str]:
    """What follows ``train``, without ``--gpus`` and its number."""
    given = list(command_line[command_line.index("train") + 1 :]) if "train" in command_line else []
    kept: list[str] = []
    skip = False
    for word in given:
        if skip or word == "--gpus":
            skip = not skip
        elif not word.startswith("--gpus="):
            kept.append(word)
    return kept


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
