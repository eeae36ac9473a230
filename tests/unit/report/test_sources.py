import shutil
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.records import Outcome
from ptxbench.report import write_report
from ptxbench.report.sources import load
from ptxbench.report.terminal import rate_text
from tests.conftest import ROOT

EXAMPLE = ROOT / "generated" / "examples" / "claude-exchange"


def test_a_run_and_its_json_report_say_the_same(tmp_path: Path) -> None:
    (run,) = load([EXAMPLE], ROOT)
    write_report(tmp_path / "claude-exchange.json", run.report)
    again, report = load([EXAMPLE, tmp_path / "claude-exchange.json"], ROOT)
    assert (run.name, again.name, report.name) == ("claude-exchange", "claude-exchange", "claude-exchange (2)")
    assert run.report == again.report == report.report
    assert again.run is not None
    assert report.run is None
    assert run.report.environment is not None
    assert [device.name for device in run.report.environment.devices] == ["NVIDIA H200"]
    assert any(row.roofline is not None for row in run.report.turns)


def test_a_damaged_turn_is_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(EXAMPLE, folder)
    damaged = next(folder.rglob("turn2.json"))
    damaged.write_text("{")
    (run,) = load([folder], ROOT)
    assert len(run.report.turns) == 16
    (row,) = (row for row in run.report.turns if row.fault is not None)
    assert row.fault is not None
    assert (row.key.turn, row.fault.kind, row.verdict.outcome) == (2, "damaged_record", Outcome.INFRASTRUCTURE_ERROR)
    (cell,) = (cell for cell in run.report.cells if cell.excluded)
    (whole,) = (whole for whole in load([EXAMPLE], ROOT)[0].report.cells if whole.key == cell.key)
    assert (cell.excluded, cell.limits[-1].correct.turns) == (1, whole.limits[-1].correct.turns - 1)
    (note,) = run.notes
    assert str(damaged) in note
    assert damaged.read_text() == "{"


def test_a_run_of_a_suite_that_is_not_known_here_has_no_roofline(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(EXAMPLE, folder)
    identity = folder / "run.json"
    identity.write_text(identity.read_text().replace('"primary"', '"of-another-checkout"'))
    (run,) = load([folder], ROOT)
    assert len(run.report.turns) == 16
    assert all(row.roofline is None for row in run.report.turns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a JSON report .* found Field required at cells"),
        ('{"schema_version": 3, "cells": [], "turns": []}', "found .* at schema_version"),
        ("turns", "Invalid JSON"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load([path], ROOT)


def test_a_folder_without_a_run_or_turns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found no run\.json"):
        load([tmp_path], ROOT)
    shutil.copy(EXAMPLE / "run.json", tmp_path)
    with pytest.raises(InputError, match="expected a run with finished turns"):
        load([tmp_path], ROOT)


def test_a_trajectory_without_any_whole_record_is_left_out_of_n_and_nothing_is_zero(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(EXAMPLE, folder)
    (lost,) = folder.glob("turns/*gemm*")
    for path in lost.glob("turn*.json"):
        path.write_text("{")
    (run,) = load([folder], ROOT)
    (cell,) = (cell for cell in run.report.cells if cell.case.startswith("gemm"))
    assert (cell.turns, cell.excluded) == (cell.outcomes["infrastructure_error"], cell.turns)
    assert {rate_text(at.correct) for at in cell.limits if at.limit <= cell.turns} == {"?"}
