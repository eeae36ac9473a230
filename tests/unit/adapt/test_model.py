"""Files of records between the stages."""

from __future__ import annotations

import pytest

from ptxbench.adapt.model import FAILURES, Failure, read_lines, write_lines
from ptxbench.errors import InputError
from tests.support.fixit_parts import wrong


def test_records_are_sorted_by_id_and_read_back(tmp_path):
    records = [wrong(turn=turn) for turn in range(5)]
    write_lines(records, tmp_path / "one")
    write_lines(reversed(records), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_lines(Failure, tmp_path / "one") == sorted(records, key=lambda one: one.id)


def test_texts_with_odd_line_ends_stay_one_line(tmp_path):
    record = wrong().model_copy(update={"feedback": "a\u2028b\x85c\x0bd\r\ne"})
    write_lines([record], tmp_path / FAILURES)
    assert read_lines(Failure, tmp_path / FAILURES) == [record]


def test_ids_tell_turns_runs_and_kernels_apart_but_not_names():
    failure = wrong()
    renamed = failure.model_copy(update={"origin": failure.origin.model_copy(update={"run": "another name"})})
    later = failure.model_copy(update={"origin": failure.origin.model_copy(update={"run_created_at": "2027"})})
    edited = failure.model_copy(update={"source": f"{failure.source}//"})
    assert renamed.id == failure.id
    assert len({failure.id, later.id, edited.id, wrong(turn=1).id}) == 4


def test_a_line_that_is_no_record_is_named(tmp_path):
    write_lines([wrong()], tmp_path / FAILURES)
    with (tmp_path / FAILURES).open("a") as file:
        file.write("{}\n")
    with pytest.raises(InputError, match=r"failures\.jsonl:2: expected one Failure as JSON, found"):
        read_lines(Failure, tmp_path / FAILURES)
    with pytest.raises(InputError, match="expected a file of records"):
        read_lines(Failure, tmp_path / "none")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_lines([wrong()], tmp_path / "file" / FAILURES)
