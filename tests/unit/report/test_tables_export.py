import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.cli import main
from ptxbench.errors import InputError
from ptxbench.report.sources import Source, load
from ptxbench.report.tables_export import RATES, TURNS, export_benchmarks, export_frames
from tests.conftest import ROOT

EXAMPLE = ROOT / "generated" / "examples" / "claude-exchange"


@pytest.fixture(scope="module")
def sources() -> tuple[Source, ...]:
    return load([EXAMPLE, EXAMPLE], ROOT)


def test_csv_has_a_row_for_every_turn_and_every_rate(sources: tuple[Source, ...], tmp_path: Path) -> None:
    lines = export_frames(sources, tmp_path, "csv")
    assert [line.rsplit(": ")[-1] for line in lines] == ["32 rows", "144 rows"]
    with (tmp_path / "turns.csv").open(newline="") as file:
        turns = list(csv.DictReader(file))
    assert list(turns[0]) == list(TURNS)
    assert {row["run"] for row in turns} == {"claude-exchange", "claude-exchange (2)"}
    row = sources[0].report.turns[0]
    assert float(turns[0]["speedup"]) == row.verdict.speedup
    assert (turns[0]["correct"], turns[0]["id"]) == ("1", row.id)
    wrong = next(row for row in turns if row["outcome"] == "numerical_error")
    assert (wrong["speedup"], wrong["tflops"], wrong["correct"]) == ("", "", "0")
    with (tmp_path / "rates.csv").open(newline="") as file:
        rates = list(csv.DictReader(file))
    assert list(rates[0]) == list(RATES)
    fast = [row for row in rates if row["metric"] == "fast_p" and row["limit"] == "8" and row["p"] == "0.8"]
    at = sources[0].report.cells[0].limits[-1].fast_p[1]
    assert (fast[0]["hits"], float(fast[0]["value"]), fast[0]["inst"]) == (str(at.any.hits), at.any.value, "0")
    assert {row["hits"] for row in rates if row["metric"] == "best_speedup"} == {""}


def test_parquet_says_the_same_with_types(sources: tuple[Source, ...], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_frames(sources[:1], tmp_path, "parquet")
    turns = parquet.read_table(tmp_path / "turns.parquet")
    assert turns.column_names == list(TURNS)
    assert [str(turns.schema.field(name).type) for name in ("id", "turn", "correct", "speedup")] == [
        "string",
        "int64",
        "bool",
        "double",
    ]
    rows = turns.to_pylist()
    expected = [(row.id, row.verdict.speedup, row.verdict.correct) for row in sources[0].report.turns]
    assert [(row["id"], row["speedup"], row["correct"]) for row in rows] == expected
    rates = parquet.read_table(tmp_path / "rates.parquet").to_pylist()
    assert rates[0] == dict.fromkeys(RATES) | {
        "run": "claude-exchange",
        "model": "claude-exchange",
        "case": "gemm_n7168_k5120",
        "arch": "h100",
        "limit": 1,
        "metric": "correct",
        "inst": False,
        "hits": 1,
        "turns": 1,
        "unneeded": 0,
        "unknown": 0,
        "value": 1.0,
        "value_of_needed": 1.0,
    }


def test_without_pyarrow_it_says_how_to_get_it(
    sources: tuple[Source, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'ptxbench\[frames\]'"):
        export_frames(sources, tmp_path, "parquet")


def test_pytest_benchmark_compares_it_and_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("before", "after"):
        path = tmp_path / f"{name}.json"
        assert main(["export", str(EXAMPLE), "--format", "pytest-benchmark", "--into", str(path)]) == 0
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "before.json", "after.json"]
    command += ["--group-by=fullname", f"--histogram={tmp_path / 'drawn'}", "--csv=compared.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    timed = [row for row in load([EXAMPLE], ROOT)[0].report.turns if row.samples is not None]
    assert len(timed) == 15
    for row in timed:
        assert f"test_speedup[{row.id}]" in done.stdout
    assert len(list(tmp_path.glob("drawn*.svg"))) == len(timed)
    with (tmp_path / "compared.csv").open(newline="") as file:
        medians = [float(row["median"]) for row in csv.DictReader(file)]
    assert sorted(medians) == pytest.approx(sorted(row.samples.median_ms / 1e3 for row in timed * 2 if row.samples))


def test_a_file_says_what_the_timings_are_of(sources: tuple[Source, ...], tmp_path: Path) -> None:
    export_benchmarks(sources[:1], tmp_path / "timings.json")
    document = json.loads((tmp_path / "timings.json").read_text())
    assert document["machine_info"]["cpu"]["brand"] == "NVIDIA H200"
    assert document["machine_info"]["gpu"][0]["driver"]
    first = document["benchmarks"][0]
    assert first["group"] == "gemm_n7168_k5120-h100"
    assert first["extra_info"]["speedup"] == sources[0].report.turns[0].verdict.speedup


def test_what_cannot_be_compared_is_refused(sources: tuple[Source, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one run, found 2"):
        export_benchmarks(sources, tmp_path / "timings.json")
    untimed = sources[0].report.model_copy(update={"turns": ()})
    with pytest.raises(InputError, match="found none in claude-exchange"):
        export_benchmarks([sources[0]._replace(report=untimed)], tmp_path / "timings.json")


def test_a_place_that_cannot_be_written_is_named(sources: tuple[Source, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--into .*turns\.csv: expected a place that can be written"):
        export_frames(sources, tmp_path / "file", "csv")
