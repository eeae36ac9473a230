"""What became of every planned turn."""

from ptxbench.records import EndReason, TrajectoryEnd
from ptxbench.report import CellPlan, build_report
from ptxbench.report.page.board import Row, make_board
from ptxbench.report.page.figures.speed import curve
from ptxbench.report.page.palette import DARK, FAINT, NOT_TAKEN, faded, subject_looks
from ptxbench.report.sources import Source
from tests.unit.report.reports import CELL, WRONG, made, records, report


def row_of(found) -> Row:
    (row,) = make_board([Source("run", found, None)]).rows
    return row


def states(row: Row) -> dict[int, list[str]]:
    """By trajectory, the states of its missing turns in order."""
    found: dict[int, list[str]] = {}
    for (name, _), why in sorted(row.missing.items()):
        number = -1 if name.startswith("#") else int(name.rpartition("-t")[2])
        found.setdefault(number, []).append(why)
    return found


def test_turns_after_a_reached_target_are_so_without_a_record_of_the_end() -> None:
    row = row_of(report([WRONG, made(1.3)], [WRONG], turns=4))
    assert states(row) == {0: ["target_reached"] * 2, 1: ["no_record"] * 3}


def test_a_hole_did_not_happen_and_an_end_says_why_from_its_turn_on() -> None:
    rows = records([[WRONG, WRONG, made(1.3)], [WRONG, WRONG, WRONG]])
    reason: EndReason = "budget"
    end = TrajectoryEnd(key=rows[5].key.model_copy(update={"turn": 3}), reason=reason, message="spent")
    kept = [row for at, row in enumerate(rows) if at not in (1, 4)]
    row = row_of(build_report(kept, {CELL: CellPlan(3, 4)}, [end]))
    assert states(row) == {0: ["no_record", "target_reached"], 1: ["no_record", "not_asked"], -1: ["no_record"] * 4}


def test_what_did_not_happen_has_a_look_of_its_own() -> None:
    assert len({look.label for look in NOT_TAKEN.values()}) == len(NOT_TAKEN)
    assert len({look.colour for look in NOT_TAKEN.values()}) == len(NOT_TAKEN)


def test_a_planned_variant_without_results_is_zero_in_the_band() -> None:
    found = build_report(records([[made(1.1)], [made(1.1)]]), {CELL: CellPlan(6, 1, {0: 2, 1: 2, 2: 2})})
    row = row_of(found)
    assert [(len(one.results), one.trajectories) for one in row.variants] == [(2, 2), (0, 2), (0, 2)]
    at_one = curve(row.variants, 1, [1.0], inst=False)
    assert (at_one.mean, at_one.low, at_one.high) == ([33.33], [0.0], [100.0])


def test_a_report_without_plans_of_variants_shares_evenly() -> None:
    found = build_report(records([[made(1.1)], [made(1.1)]]), {CELL: CellPlan(6, 1)})
    assert [one.trajectories for one in row_of(found).variants] == [6]


def test_faint_points_stand_out_in_dark() -> None:
    colour = subject_looks(["model"])["model"].colour
    assert DARK[faded(colour, FAINT)] == faded(colour, 0.95)
