from __future__ import annotations

import json

import pytest

from ptxbench.errors import InputError
from ptxbench.trace import (
    FileError,
    load_definition,
    load_solution,
    load_traces,
    load_workloads,
    save_definition,
    save_solution,
    save_traces,
    save_workloads,
)
from tests.unit.trace import samples


def test_definitions_round_trip(tmp_path):
    definition = load_definition(samples.write_json(tmp_path / "d.json", samples.definition()))
    save_definition(definition, tmp_path / "new" / "d.json")
    assert load_definition(tmp_path / "new" / "d.json") == definition


def test_solutions_round_trip(tmp_path):
    solution = load_solution(samples.write_json(tmp_path / "s.json", samples.solution()))
    save_solution(solution, tmp_path / "s2.json")
    assert load_solution(tmp_path / "s2.json") == solution


def test_workloads_and_traces_round_trip(tmp_path):
    workloads = load_workloads(samples.write_jsonl(tmp_path / "w.jsonl", samples.workload()))
    save_workloads(workloads, tmp_path / "w2.jsonl")
    assert load_workloads(tmp_path / "w2.jsonl") == workloads
    traces = load_traces(samples.write_jsonl(tmp_path / "t.jsonl", samples.workload(), samples.trace()))
    assert [trace.is_workload for trace in traces] == [True, False]
    save_traces(traces, tmp_path / "t2.jsonl")
    assert load_traces(tmp_path / "t2.jsonl") == traces


def test_saving_leaves_no_other_file(tmp_path):
    workloads = load_workloads(samples.write_jsonl(tmp_path / "w.jsonl", samples.workload()))
    save_workloads(workloads, tmp_path / "out" / "w.jsonl")
    save_workloads(workloads, tmp_path / "out" / "w.jsonl")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["w.jsonl"]


def test_blank_lines_are_skipped_and_counted(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text("\n \n{}\n")
    with pytest.raises(FileError, match=r"definition.*this required key") as caught:
        load_workloads(path)
    assert caught.value.line == 3


def test_a_line_separator_inside_a_string_ends_no_line(tmp_path):
    path = tmp_path / "w.jsonl"
    row = samples.change(samples.workload(), "workload", "uuid", to="u\u2028v")
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_workloads(path)[0].workload.uuid == "u\u2028v"


def test_a_repeated_uuid_names_both_lines(tmp_path):
    path = samples.write_jsonl(tmp_path / "w.jsonl", samples.workload(), samples.workload())
    with pytest.raises(FileError, match=r":2: `workload.uuid`: expected each uuid once.*after line 1"):
        load_workloads(path)


def test_one_file_holds_one_definition(tmp_path):
    other = {**samples.workload(), "definition": "other"}
    path = samples.write_jsonl(tmp_path / "w.jsonl", samples.workload(), other)
    with pytest.raises(FileError, match=r":2: `definition`: expected 'scale_d8'"):
        load_workloads(path)


def test_a_result_is_no_workload(tmp_path):
    path = samples.write_jsonl(tmp_path / "w.jsonl", samples.trace())
    with pytest.raises(FileError, match=r"`solution`: expected null"):
        load_workloads(path)


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="expected a readable file"):
        load_definition(tmp_path / "none.json")


def test_a_folder_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="expected a readable file"):
        load_definition(tmp_path)


def test_bytes_that_are_no_text_are_an_input_error(tmp_path):
    (tmp_path / "d.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(FileError, match="UTF-8"):
        load_definition(tmp_path / "d.json")
