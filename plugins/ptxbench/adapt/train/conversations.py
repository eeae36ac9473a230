"""The records of a dataset folder, as training reads them. docs/adaptation.md describes the file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ptxbench.errors import InputError
from ptxbench.records.base import first_fault

RECORDS = "train.jsonl"


class SaidMessage(BaseModel):
    """One message of a line; other keys, such as weights for other trainers, are not looked at."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: str
    content: str
    training: bool
    """Whether the message is supervised."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = ""
    messages: tuple[SaidMessage, ...]


class Conversation(NamedTuple):
    """One training record."""

    name: str
    """Its id, or its place in the file."""
    messages: tuple[dict[str, str], ...]
    """Role and content of each; the last one is supervised, and no other."""


class Records(NamedTuple):
    """All records of a dataset."""

    conversations: tuple[Conversation, ...]
    sha256: str
    """Of the file."""


def read_records(dataset: Path) -> Records:
    """Read the records of ``dataset``, a folder that ``ptxbench fixit build`` wrote, or a file like its JSONL file.

    Raises InputError for a file that cannot be read, and for records that supervise anything but their last message,
    which must be the assistant's.
    """
    path = dataset / RECORDS if dataset.is_dir() else dataset
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"--dataset {dataset}: expected a folder that holds {RECORDS}, or such a file, found: {error.strerror}; "
            "build one with ptxbench fixit build"
        ) from error
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: expected at least one record, found an empty file; collect more failures")
    found = tuple(_conversation(path, number, line) for number, line in lines)
    name, count = Counter(one.name for one in found).most_common(1)[0]
    if count > 1:
        raise InputError(
            f"{path}: expected records that differ in their ids, found {name} {count} times; build it again"
        )
    return Records(found, hashlib.sha256(data).hexdigest())


def _conversation(path: Path, number: int, line: bytes) -> Conversation:
    place = f"{path}:{number}"
    try:
        read = _Line.model_validate(json.loads(line))
    except ValidationError as error:
        raise InputError(
            f"{place}: expected a record with messages of role, content and training, found {first_fault(error)}; "
            "build the dataset again"
        ) from error
    except ValueError as error:
        raise InputError(f"{place}: expected a line of JSON, found: {error}; build the dataset again") from error
    supervised = [at for at, message in enumerate(read.messages) if message.training]
    if len(read.messages) < 2 or supervised != [len(read.messages) - 1] or read.messages[-1].role != "assistant":
        raise InputError(
            f"{place}: expected a conversation of which the last message, the assistant's, is supervised and no other, "
            f"found {[f'{one.role}: {one.training}' for one in read.messages]}; build the dataset again"
        )
    messages = tuple({"role": one.role, "content": one.content} for one in read.messages)
    return Conversation(read.id or f"line {number}", messages)
