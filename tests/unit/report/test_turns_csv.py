import json
from pathlib import Path

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.identity import Session
from ptxbench.cli import main
from ptxbench.errors import InputError
from ptxbench.models.replay import ReplayModel
from ptxbench.records import Outcome, Target
from ptxbench.report.sources import load
from ptxbench.report.turns_csv import COLUMNS, import_turns
from tests.conftest import ROOT

GOOD = {
    "model": "Some Model 2",
    "arch": "hopper",
    "workload": "GEMM",
    "run_and_variant": "first#p1",
    "trajectory": "exp_000",
    "turn": "0",
    "correctness": "Correct",
    "speedup": "0.75",
    "target_executed": "1",
}


def csv_of(tmp_path: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    path = tmp_path / "turns.csv"
    lines = [",".join(columns), *(",".join((GOOD | row)[name] for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_turns_become_records_without_anything_of_ours(tmp_path: Path) -> None:
    rows = (
        {"trajectory": "exp_007"},
        {"trajectory": "exp_003", "target_executed": ""},
        {"trajectory": "exp_003", "turn": "1", "correctness": "Numerical error", "speedup": "0.0"},
        {"arch": "b200", "workload": "mha_bwd_d128", "correctness": "timeout"},
    )
    done = import_turns(ROOT, csv_of(tmp_path, *rows), str(tmp_path / "run"))
    assert (done.turns, done.cells) == (4, 2)
    store = RunStore.read(done.folder)
    records = {str(turn.record.key): turn.record for turn in store.turns()}
    cell = "Some_Model_2-gemm_n7168_k5120-h100-v1"
    first = records[f"{cell}-t1-turn0"]
    assert (first.origin, first.build, first.evidence, first.source_sha256) == ("imported", None, None, None)
    assert (first.verdict.outcome, first.verdict.speedup) == (Outcome.CORRECT, 0.75)
    assert first.verdict.message == "imported (turns.csv, line 2): Correct"
    assert first.variant_name == "cluster-multicast"
    assert records[f"{cell}-t0-turn0"].verdict.target is Target.UNKNOWN
    assert records[f"{cell}-t0-turn1"].verdict.speedup is None
    assert records["Some_Model_2-mha_bwd_d128-b200-v1-t0-turn0"].verdict.outcome is Outcome.TIMEOUT
    assert store.turns_given("Some_Model_2") == 2
    (source,) = load([done.folder], ROOT)
    assert [cell.imported for cell in source.report.cells] == [1, 3]
    assert source.report.cells[1].evidence_origins == {"none": 3}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("arch", "ampere", "line 3: expected arch to be one of hopper, blackwell, b200, h100, found 'ampere'"),
        ("workload", "Softmax", "line 3: expected workload to be one of GEMM"),
        ("run_and_variant", "first", "line 3: expected run_and_variant to be RUN#pK"),
        ("turn", "-1", "line 3: expected turn to be the number of a turn"),
        ("turn", "9" * 5_000, f"line 3: expected turn to be the number of a turn, from 0, found '{'9' * 80}'"),
        ("correctness", "Fine", "line 3: expected correctness to be one of Correct"),
        ("speedup", "fast", "line 3: expected speedup to be a number of at least 0"),
        ("speedup", "nan", "line 3: expected speedup to be a number of at least 0"),
        ("speedup", "-1", "line 3: expected speedup to be a number of at least 0"),
        ("target_executed", "yes", "line 3: expected target_executed to be 1, 0, or nothing"),
        ("model", "", "line 3: expected model to be the name of a model, found 'nothing'"),
    ],
)
def test_a_line_that_is_not_understood_is_named(tmp_path: Path, column: str, value: str, message: str) -> None:
    source = csv_of(tmp_path, {}, {"turn": "1", column: value})
    with pytest.raises(InputError, match=message):
        import_turns(ROOT, source, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_turn_that_appears_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 3: expected each turn once, found turn 0 .* on line 2 too"):
        import_turns(ROOT, csv_of(tmp_path, {}, {}), str(tmp_path / "run"))


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none named speedup"):
        import_turns(ROOT, csv_of(tmp_path, columns=tuple(c for c in COLUMNS if c != "speedup")), str(tmp_path / "run"))
    with pytest.raises(InputError, match="found a file without any"):
        import_turns(ROOT, csv_of(tmp_path), str(tmp_path / "run"))
    with pytest.raises(InputError, match="expected a CSV file"):
        import_turns(ROOT, tmp_path / "none.csv", str(tmp_path / "run"))


def test_a_run_that_exists_is_left_alone(tmp_path: Path) -> None:
    source = csv_of(tmp_path, {})
    import_turns(ROOT, source, str(tmp_path / "run"))
    with pytest.raises(InputError, match="expected a new run"):
        import_turns(ROOT, source, str(tmp_path / "run"))


def test_imported_results_are_neither_continued_nor_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = import_turns(ROOT, csv_of(tmp_path, {}), str(tmp_path / "run")).folder
    suites = json.loads((folder / "run.json").read_text())["suites"]
    with pytest.raises(InputError, match=r"found results of somebody else, imported from turns\.csv"):
        RunStore.open(folder, *Session(suites))
    with pytest.raises(InputError, match="expected a run with kernels"):
        ReplayModel(RunStore.read(folder))
    monkeypatch.chdir(ROOT)
    assert main(["judge", str(folder)]) == 0
    assert capsys.readouterr().out.endswith("1 turns judged again, 0 verdicts changed\n")


def test_two_models_that_one_name_would_stand_for_are_refused(tmp_path: Path) -> None:
    source = csv_of(tmp_path, {"model": "a b"}, {"model": "a b", "turn": "1"}, {"model": "a/b"})
    with pytest.raises(InputError, match=r"line 4: expected model names that .*'a b' and 'a/b', .*rename one"):
        import_turns(ROOT, source, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
