"""Reports and runs that nobody could have written: refused at the border, with the file and the field."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.report import write_report
from ptxbench.report.compare import compare_reports
from ptxbench.report.compare_text import render_comparison
from ptxbench.report.page.board import make_board
from ptxbench.report.page.figures import all_cards
from ptxbench.report.page.figures.speed import MOST_STEPS
from ptxbench.report.paper_layout import render_paper
from ptxbench.report.sources import Source, load
from ptxbench.report.tables_export import export
from ptxbench.report.terminal import render
from tests.conftest import ROOT
from tests.unit.report.reports import WRONG, made, report

EXAMPLE = ROOT / "generated" / "examples" / "claude-exchange"
Document = dict[str, Any]


def at(*path: str | int, value: object) -> Callable[[Document], None]:
    """A change of one field."""

    def change(document: Document) -> None:
        place: Any = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


CELL = ("cells", 0)
LAST = (*CELL, "limits", 0)
VERDICT = ("turns", 0, "verdict")
HOSTILE = {
    "no limits": (at(*CELL, "limits", value=[]), "cells.0.limits"),
    "no thresholds": (at(*LAST, "fast_p", value=[]), "cells.0.limits.0.fast_p"),
    "hits of nothing": (at(*LAST, "correct", "turns", value=0), "1 hits of 0 turns at cells.0.limits.0.correct"),
    "endless hits": (at(*LAST, "correct", "hits", value=10**400), "cells.0.limits.0.correct.hits"),
    "negative count": (at(*CELL, "outcomes", value={"correct": -1}), "cells.0.outcomes.correct"),
    "best beyond all": (at(*LAST, "best_speedup", value=1e300), "cells.0.limits.0.best_speedup"),
    "rate beyond all": (at(*LAST, "correct", "value", value=2.0), "cells.0.limits.0.correct.value"),
    "no number": (at(*VERDICT, "speedup", value=float("nan")), "turns.0.verdict.speedup"),
    "endless speedup": (at(*VERDICT, "speedup", value=float("inf")), "turns.0.verdict.speedup"),
    "huge speedup": (at(*VERDICT, "speedup", value=1e308), "turns.0.verdict.speedup"),
    "no speedup": (at(*VERDICT, "speedup", value=0.0), "turns.0.verdict.speedup"),
    "negative speedup": (at(*VERDICT, "speedup", value=-1.0), "turns.0.verdict.speedup"),
    "negative latency": (at(*VERDICT, "latency_ms", value=-1.0), "turns.0.verdict.latency_ms"),
    "negative turn": (at("turns", 0, "key", "turn", value=-1), "turns.0.key.turn"),
    "late turn": (at("turns", 0, "key", "turn", value=10**9), "turns.0.key.turn"),
    "no trajectories": (at(*CELL, "trajectories", value=0), "cells.0.trajectories"),
    "negative trajectories": (at(*CELL, "trajectories", value=-3), "cells.0.trajectories"),
    "few trajectories": (at(*CELL, "trajectories", value=1), "cells.0.trajectories, of which 2 have turns"),
    "endless trajectories": (at(*CELL, "trajectories", value=10**7), "at most 20,000 trajectories"),
    "no turns": (at(*CELL, "turns_per_trajectory", value=0), "cells.0.turns_per_trajectory"),
    "endless turns": (at(*CELL, "turns_per_trajectory", value=10**9), "cells.0.turns_per_trajectory"),
    "one turn twice": (lambda found: found["turns"].append(found["turns"][0]), "turn0 2 times in turns"),
    "one cell twice": (lambda found: found["cells"].append(found["cells"][0]), "2 times in cells"),
    "no cell": (at("cells", value=[]), "no cell in cells"),
    "unknown end": (
        lambda found: found["ends"].append({"key": found["turns"][0]["key"], "reason": "why not", "message": ""}),
        "ends.0.reason",
    ),
    "other thresholds": (at(*LAST, "fast_p", 0, "p", value=0.1), "thresholds p"),
}


def document() -> Document:
    found: Document = json.loads(report([made(1.1), WRONG], [WRONG]).model_dump_json())
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused_with_file_and_field(tmp_path: Path, name: str) -> None:
    change, told = HOSTILE[name]
    found = document()
    change(found)
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputError) as raised:
        load([path], ROOT)
    assert str(path) in str(raised.value)
    assert told in str(raised.value)


def test_the_same_document_unchanged_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document()))
    assert load([path], ROOT)[0].report == report([made(1.1), WRONG], [WRONG])


@pytest.mark.parametrize("turns", [0, -1, 10**9])
def test_a_run_that_gave_impossible_turns_is_refused(tmp_path: Path, turns: int) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    identity = json.loads(path.read_text())
    model = next(iter(identity["turns"]))
    identity["turns"][model] = turns
    path.write_text(json.dumps(identity))
    with pytest.raises(InputError, match=rf"run\.json: .*turns\.{model}"):
        load([tmp_path / "run"], ROOT)


@pytest.mark.parametrize("field", ["speedup", "latency_ms", "baseline_ms"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), 1e300])
def test_an_impossible_verdict_in_a_run_is_damage_with_its_field(tmp_path: Path, field: str, value: float) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run")
    damaged = next((tmp_path / "run").rglob("turn1.json"))
    record = json.loads(damaged.read_text())
    record["verdict"][field] = value
    damaged.write_text(json.dumps(record))
    (run,) = load([tmp_path / "run"], ROOT)
    (note,) = [note for note in run.notes if str(damaged) in note]
    assert f"verdict.{field}" in note


def test_names_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    evil = report([made(1.1), WRONG], model="evil")
    write_report(path, evil)
    escape = "\x1b]0;owned\x07\u202e\x9b2J"
    path.write_text(path.read_text().replace("evil", json.dumps(f"e{escape}")[1:-1]))
    (source,) = load([path], ROOT)
    assert source.report.cells[0].model == f"e{escape}"
    comparison = compare_reports({"a": source.report, "b": source.report})
    for lines in (
        render(source.report.cells, 120),
        render_paper(source.report.cells, 120),
        render_comparison(comparison, 120),
    ):
        text = "\n".join(lines)
        assert "e\\u001b]0;owned\\u0007\\u202e\\u009b2J" in text
        assert not set(escape) & {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)


def test_an_export_tells_of_damage(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run")
    damaged = next((tmp_path / "run").rglob("turn1.json"))
    damaged.write_text("{")
    lines = export([str(tmp_path / "run")], "csv", tmp_path / "tables")
    assert any(str(damaged) in line for line in lines)


def test_a_thousandfold_speedup_is_drawn_in_as_many_steps(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    found = Source("run", report([made(1e15), WRONG]), None)
    card = next(card for card in all_cards(make_board([found])) if card.key == "fast-p-0")
    assert all(len(trace.x) <= 2 * (MOST_STEPS + 2) for trace in card.views[0].figure.data)
