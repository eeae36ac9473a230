"""Reading the records of a dataset."""

from __future__ import annotations

import hashlib
import json

import pytest

from ptxbench.adapt.train.conversations import RECORDS, read_records
from ptxbench.errors import InputError
from tests.support.small_model import repair, write_dataset


def test_a_folder_and_its_file_are_the_same_dataset(tmp_path) -> None:
    write_dataset(tmp_path, 3)
    found = read_records(tmp_path)
    assert found == read_records(tmp_path / RECORDS)
    assert [one.name for one in found.conversations] == ["repair-0", "repair-1", "repair-2"]
    assert [one["role"] for one in found.conversations[0].messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert set(found.conversations[0].messages[0]) == {"role", "content"}
    assert found.sha256 == hashlib.sha256((tmp_path / RECORDS).read_bytes()).hexdigest()


def changed(**changes):
    record = repair(0)
    record["messages"] = [message | changes.get(f"m{at}", {}) for at, message in enumerate(record["messages"])]
    return record | {name: value for name, value in changes.items() if name[0] != "m" or name == "messages"}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (changed(m2={"training": True}), "the last message"),
        (changed(m4={"training": False}), "the last message"),
        (changed(m4={"role": "user"}), "the last message"),
        (changed(messages=[]), "the last message"),
        (changed(messages=repair(0)["messages"][-1:]), "the last message"),
        (changed(m1={"content": None}), "messages.1.content"),
        ({"id": "a"}, "messages"),
        ([1], "the document"),
    ],
)
def test_a_record_that_supervises_anything_else_is_refused(tmp_path, record, told) -> None:
    (tmp_path / RECORDS).write_text(f"{json.dumps(repair(1))}\n{json.dumps(record)}\n")
    with pytest.raises(InputError, match=f"{RECORDS}:2: .*{told}"):
        read_records(tmp_path)


@pytest.mark.parametrize(("text", "told"), [("", "empty file"), ("{", "line of JSON"), ("\n\n", "empty file")])
def test_a_file_without_records_is_refused(tmp_path, text, told) -> None:
    (tmp_path / RECORDS).write_text(text)
    with pytest.raises(InputError, match=told):
        read_records(tmp_path)


def test_a_missing_file_and_a_repeated_id_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="--dataset"):
        read_records(tmp_path)
    (tmp_path / RECORDS).write_text(f"{json.dumps(repair(1))}\n" * 2)
    with pytest.raises(InputError, match="found repair-1 2 times"):
        read_records(tmp_path)
