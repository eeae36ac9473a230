"""What ``fixit build`` writes is what training and reports read."""

from __future__ import annotations

from ptxbench.adapt import manifest as built
from ptxbench.adapt.dataset_files import jsonl
from ptxbench.adapt.model import TrainingMessage, TrainingRecord
from ptxbench.adapt.train.conversations import RECORDS, read_records
from ptxbench.report import dataset as reported
from tests.support.small_model import repair

TEXT = "", "x", "line\nline\u2028 \u202e \U0001f600 \x85 \x0c end"
"""Characters at which some readers of lines end one."""


def record(number: int) -> TrainingRecord:
    said = repair(number)
    columns = dict.fromkeys(
        (name for name, field in TrainingRecord.model_fields.items() if field.annotation is str), "x"
    )
    counts = dict.fromkeys((name for name, field in TrainingRecord.model_fields.items() if field.annotation is int), 1)
    messages = tuple(TrainingMessage(**message) for message in said["messages"])
    messages = (messages[0].model_copy(update={"content": TEXT[number]}), *messages[1:])
    hashes = dict.fromkeys(("kernel_sha256", "pack_sha256"), "0" * 64)
    return TrainingRecord(
        **{**columns, **counts, **hashes, "id": said["id"], "messages": messages, "kind": "fixit", "speedup": None}
    )


def test_training_reads_the_lines(tmp_path) -> None:
    (tmp_path / RECORDS).write_bytes(jsonl([record(number) for number in range(len(TEXT))]))
    found = read_records(tmp_path).conversations
    assert [one.name for one in found] == ["repair-0", "repair-1", "repair-2"]
    assert [one.messages[0]["content"] for one in found] == list(TEXT)
    assert [one.messages[-1]["content"] for one in found] == [
        repair(number)["messages"][-1]["content"] for number in range(3)
    ]


def test_the_names_of_files_and_fields_agree() -> None:
    assert built.TRAIN == RECORDS
    assert built.MANIFEST == reported.MANIFEST
    assert reported.Manifest.model_fields.keys() <= built.Manifest.model_fields.keys()
