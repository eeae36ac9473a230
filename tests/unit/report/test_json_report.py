import json
import os
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.records import BuildStatus, InfrastructureFault, Target, TrajectoryEnd
from ptxbench.report import CellKey, CellPlan, RunReport, build_report, write_report
from ptxbench.report.results import results_of
from ptxbench.report.summary import summarize
from ptxbench.verdict import judge_extraction_error, judge_infrastructure
from ptxbench.verdict.metrics import TurnResult, best_speedup, correctness_rate, fast_p_inst
from tests.unit.factories import GEMM, digest, make_evidence, make_record, suite_case, unbuilt
from tests.unit.report.reports import CELL, WRONG, key, made, partial, records

FAULT = InfrastructureFault(kind="oracle_died", message="the oracle ended")
RECORDS = (
    make_record(0),
    make_record(1, evidence=None),
    make_record(2, build=unbuilt(BuildStatus.COMPILE_ERROR, log="error: no"), evidence=None),
    make_record(3, build=None, evidence=None, fault=FAULT, verdict=judge_infrastructure(FAULT)),
    make_record(4, build=None, evidence=None, source_sha256=None, verdict=judge_extraction_error("no code")),
    make_record(0, case=suite_case("mha_bwd_d128"), evidence=None),
)
PLANS = {CellKey("reference", GEMM, "h100"): CellPlan(2, 8)}
PLANS_OF_3 = {CellKey("reference", GEMM, "h100"): CellPlan(3, 8)}


def test_the_document_does_not_depend_on_order() -> None:
    report = build_report(RECORDS, PLANS)
    assert build_report(reversed(RECORDS), PLANS).model_dump_json() == report.model_dump_json()


def test_it_reads_back_as_it_was() -> None:
    report = build_report(RECORDS, PLANS)
    assert RunReport.model_validate_json(report.model_dump_json()) == report
    assert report.schema_version == 2
    assert report.cells == summarize(RECORDS, PLANS)


def test_rows_say_what_was_judged_and_where() -> None:
    rows = {row.id: row for row in build_report(RECORDS).turns}
    first = rows["reference-gemm_n7168_k5120-h100-v0-t0-turn0"]
    assert (first.source_sha256, first.cubin_sha256) == (digest("a"), digest("c"))
    assert (first.device, first.measured_at, first.harness) == ("NVIDIA H200", "2026-11-29T16:00:00Z", "0.1.0")
    assert first.baseline is not None
    assert first.baseline.call == "torch.matmul"
    assert rows["reference-gemm_n7168_k5120-h100-v0-t0-turn3"].fault == FAULT
    unbuilt_row = rows["reference-gemm_n7168_k5120-h100-v0-t0-turn4"]
    assert (unbuilt_row.source_sha256, unbuilt_row.cubin_sha256, unbuilt_row.device) == (None, None, None)


def test_evidence_of_something_else_is_not_named_as_the_source() -> None:
    foreign = make_evidence(cubin_sha256=digest("f"))
    (row,) = build_report([make_record(evidence=foreign, evidence_origin="replayed")]).turns
    assert (row.device, row.measured_at, row.baseline) == (None, None, None)


def test_a_document_of_version_1_is_read() -> None:
    document = json.loads(build_report(RECORDS, PLANS).model_dump_json())
    document["schema_version"] = 1
    del document["environment"], document["bootstrap"]
    for row in document["turns"]:
        for name in ("instructions", "samples", "roofline", "stages_ms", "gpu_stages_ms"):
            del row[name]
    for cell in document["cells"]:
        del cell["imported"]
        for at in cell["limits"]:
            del at["best_speedup_interval"], at["target_best_speedup_interval"]
            for rate in (
                at["correct"],
                at["target"],
                *(fast[kind] for fast in at["fast_p"] for kind in ("any", "inst")),
            ):
                del rate["interval"], rate["interval_of_needed"]
    old = RunReport.model_validate_json(json.dumps(document))
    assert (old.schema_version, old.environment, old.bootstrap) == (1, None, None)
    assert old.cells[0].limits[0].correct.interval is None


def test_every_number_of_every_cell_comes_out_of_the_document_again() -> None:
    """Both denominators, intervals and all: nothing else is needed than what the document holds."""
    end = TrajectoryEnd(
        key=RECORDS[0].key.model_copy(update={"trajectory": 1, "turn": 3}), reason="budget", message="spent"
    )
    records = [*RECORDS, *(make_record(turn, trajectory=1) for turn in range(3))]
    text = build_report(records, PLANS, [end]).model_dump_json()
    report = RunReport.model_validate_json(text)
    for cell in report.cells:
        results = results_of(report, cell)
        for at in cell.limits:
            share = correctness_rate(results, at.limit, cell.trajectories)
            assert (share.hits, share.turns, share.unneeded) == (
                at.correct.hits,
                at.correct.turns,
                at.correct.unneeded,
            )
            assert at.best_speedup == best_speedup(results, at.limit)
            for fast in at.fast_p:
                assert fast_p_inst(results, fast.p, at.limit, cell.trajectories).hits == fast.inst.hits
    gemm = next(cell for cell in report.cells if cell.case == GEMM)
    assert gemm.unasked == 5
    assert gemm.limits[-1].correct.interval is not None


def test_intervals_do_not_depend_on_the_order_or_the_names_of_trajectories() -> None:
    records = [make_record(turn, trajectory=trajectory) for trajectory in range(3) for turn in range(trajectory + 1)]
    cells = build_report(records, PLANS_OF_3).cells
    assert build_report(records[::-1], PLANS_OF_3).cells == cells
    rate = cells[0].limits[-1].correct
    assert rate.interval is not None
    assert rate.interval.low < rate.value < rate.interval.high


def test_an_end_at_the_target_is_reported_over_both_denominators() -> None:
    fast = make_record(0)
    fast = fast.model_copy(update={"verdict": fast.verdict.model_copy(update={"speedup": 1.3})})
    (cell,) = build_report([fast, make_record(0, trajectory=1)], PLANS).cells
    rate = cell.limits[-1].correct
    assert (rate.hits, rate.turns, rate.unneeded) == (2, 16, 7)
    assert rate.value == 2 / 16
    assert rate.value_of_needed == 2 / 9
    assert rate.interval is not None
    assert rate.interval_of_needed is not None
    assert rate.interval.low <= rate.value <= rate.interval.high
    assert rate.interval_of_needed.low <= rate.value_of_needed <= rate.interval_of_needed.high


def test_the_numbers_can_be_recomputed_from_the_rows_of_the_document() -> None:
    document = json.loads(build_report(RECORDS, PLANS).model_dump_json())
    cell = next(cell for cell in document["cells"] if cell["case"] == GEMM)
    rows = [
        TurnResult(
            trajectory=row["id"].rsplit("-", 1)[0],
            turn=row["key"]["turn"],
            correct=row["verdict"]["outcome"] == "correct",
            target=Target(row["verdict"]["target"]),
            speedup=row["verdict"]["speedup"],
            excluded=row["fault"] is not None,
        )
        for row in document["turns"]
        if row["key"]["case"] == GEMM
    ]
    for at in cell["limits"]:
        assert correctness_rate(rows, at["limit"], cell["trajectories"]).value == at["correct"]["value"]
        for fast in at["fast_p"]:
            assert fast_p_inst(rows, fast["p"], at["limit"], cell["trajectories"]).hits == fast["inst"]["hits"]


def test_writing_creates_the_folder_and_replaces_the_old_report(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(path, build_report(RECORDS))
    write_report(path, build_report(RECORDS[:1]))
    assert RunReport.model_validate_json(path.read_bytes()) == build_report(RECORDS[:1])
    assert [item.name for item in path.parent.iterdir()] == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["a file as folder", "a folder as file", "a name too long"])
def test_an_unwritable_place_is_a_clear_error_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    path = {
        "a file as folder": tmp_path / "file" / "report.json",
        "a folder as file": tmp_path / "folder",
        "a name too long": tmp_path / ("x" * 300),
    }[place]
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InputError, match="expected a file that the report can be written to, found: "):
        write_report(path, build_report(RECORDS))
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "kept"


def test_turns_that_were_not_selected_are_out_of_n_in_cells_and_in_what_is_recomputed():
    unselected = [key(0, 0), key(1, 2), key(1, 3)]
    # The target was reached at turn 1 of the second trajectory; nobody asked about what would follow.
    found = build_report(
        [row for row in records([[WRONG] * 4, [made(1.0), made(1.3)]]) if row.key not in unselected],
        {CELL: CellPlan(2, 4)},
        unselected=reversed(unselected),
    )
    (cell,) = found.cells
    last = cell.limits[-1].correct
    assert (cell.unselected, cell.unasked, last.hits, last.turns, last.unneeded) == (3, 0, 2, 5, 0)
    assert found.unselected == tuple(unselected)
    again = correctness_rate(results_of(found, cell), 4, cell.trajectories)
    assert (again.hits, again.turns, again.unneeded) == (2, 5, 0)


def test_a_turn_beyond_an_end_that_was_not_selected_is_left_out_once():
    found = partial([WRONG], turns=4, unselected=[key(0, 2)])
    (cell,) = found.cells
    assert (cell.unselected, cell.unasked, cell.limits[-1].correct.turns) == (1, 2, 1)
