"""Gates on reports: met, failed or unknown, with the value and the margin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.records import Outcome, Target
from ptxbench.report import build_report
from ptxbench.report.gates import Answer, judge_gate, parse
from tests.unit.report.gates.test_measure import cells
from tests.unit.report.reports import CELL, INFRASTRUCTURE, UNKNOWN, WRONG, key, made, partial, records, report

MIXED = report([made(0.9), made(1.1), WRONG, UNKNOWN])
NAME = f"claude {CELL.case} h100"


@pytest.mark.parametrize(
    ("gate", "answer", "value", "margin", "note"),
    [
        ("correct >= 50%", "MET", "50.0% (2 of 4)", "+0.0 points", "1 unknown turn: up to 75.0%"),
        ("correct > 50%", "UNKNOWN", "50.0% (2 of 4)", "+0.0 points", "1 unknown turn: up to 75.0%"),
        ("correct >= 76%", "FAILED", "50.0% (2 of 4)", "-26.0 points", "1 unknown turn: up to 75.0%"),
        ("correct <= 75%", "MET", "50.0% (2 of 4)", "+0.0 points", "1 unknown turn: up to 75.0%"),
        ("correct < 0.5", "FAILED", "50.0% (2 of 4)", "-25.0 points", "1 unknown turn: up to 75.0%"),
        ("correct == 0.6", "UNKNOWN", "50.0% (2 of 4)", "-15.0 points", "1 unknown turn: up to 75.0%"),
        ("correct != 0.8", "MET", "50.0% (2 of 4)", "+5.0 points", "1 unknown turn: up to 75.0%"),
        ("correct.at(2) == 1", "MET", "100.0% (2 of 2)", "+0.0 points", ""),
        ("correct.at(2) != 1", "FAILED", "100.0% (2 of 2)", "+0.0 points", ""),
        ("correct.at(4) != 0.75", "UNKNOWN", "50.0% (2 of 4)", "+0.0 points", "1 unknown turn: up to 75.0%"),
        ("correct.at(4) == 0.5", "UNKNOWN", "50.0% (2 of 4)", "-25.0 points", "1 unknown turn: up to 75.0%"),
        ("fast_p(1) >= 25%", "MET", "25.0% (1 of 4)", "+0.0 points", "1 unknown turn: up to 50.0%"),
        ("fast_p(1.1).at(3) == 0", "MET", "0.0% (0 of 3)", "+0.0 points", ""),
        ("best_speedup >= 1.1", "MET", "1.100", "+0.000", "1 turn of unknown speed"),
        ("best_speedup >= 1.2", "UNKNOWN", "1.100", "-0.100", "1 turn of unknown speed"),
        ("best_speedup.at(3) >= 120%", "FAILED", "1.100", "-0.100", ""),
        ("best_speedup.at(3) < 1.2", "MET", "1.100", "+0.100", ""),
        ("correct.at(5) >= 0", "UNKNOWN", "?", "", f"trajectories of {NAME} were given 4 turns"),
        ("correct.case(x) >= 0", "UNKNOWN", "?", "", f"no cell matches; there is {NAME}"),
    ],
)
def test_a_comparison(gate, answer, value, margin, note):
    judged = judge_gate(parse(gate), MIXED)
    (finding,) = judged.findings
    assert judged.answer is finding.answer is Answer[answer]
    assert (finding.value, finding.margin_text, finding.note) == (value, margin, note)


@pytest.mark.parametrize(
    ("verdict", "gate", "answer", "value", "note"),
    [
        (WRONG, "best_speedup >= 0", "FAILED", "-", "no turn has a speedup"),
        (WRONG, "best_speedup < 2", "UNKNOWN", "-", "no turn has a speedup"),
        (UNKNOWN, "best_speedup >= 0", "UNKNOWN", "-", "1 turn of unknown speed"),
        (INFRASTRUCTURE, "correct >= 0", "UNKNOWN", "?", "no turn is in N"),
        (INFRASTRUCTURE, "correct <= 1", "UNKNOWN", "?", "no turn is in N"),
    ],
)
def test_nothing_to_judge_is_never_met(verdict, gate, answer, value, note):
    (finding,) = judge_gate(parse(gate), report([verdict])).findings
    assert (finding.answer, finding.value, finding.note) == (Answer[answer], value, note)


def test_an_empty_report_meets_nothing():
    (finding,) = judge_gate(parse("correct >= 0"), build_report([])).findings
    assert (finding.answer, finding.note) == (Answer.UNKNOWN, "no turn has a record")


def two_cells():
    other = "mha_with_lse_d128"
    return build_report([*records([[made(1.1)] * 3 + [WRONG]]), *records([[made(0.9), WRONG]], case=other)])


def test_cells_count_together_unless_each_is_meant():
    # Both cells were given four turns; the second took two.
    together, each = (judge_gate(parse(f"correct{each} >= 50%"), two_cells()) for each in ("", ".each"))
    assert (together.answer, together.findings[0].value) == (Answer.MET, "50.0% (4 of 8)")
    assert (each.answer, each.findings[0].value) == (Answer.FAILED, "25.0% (1 of 4)")
    assert each.findings[0].note == "claude mha_with_lse_d128 h100, worst of 2 cells"
    assert judge_gate(parse("best_speedup >= 1"), two_cells()).answer is Answer.MET
    assert judge_gate(parse("best_speedup.each >= 1"), two_cells()).answer is Answer.FAILED


def test_a_cell_without_a_record_keeps_a_gate_from_being_met():
    absent = [CELL._replace(arch="b200")]
    (finding,) = judge_gate(parse("correct >= 0"), MIXED, absent).findings
    assert finding.answer is Answer.UNKNOWN
    assert finding.note.endswith(f"no turn of claude {CELL.case} b200 has a record")
    assert judge_gate(parse("correct.arch(h100) >= 0"), MIXED, absent).answer is Answer.MET
    assert judge_gate(parse("correct >= 1"), MIXED, absent).answer is Answer.FAILED


ANSWERS = {"correct >= 0.5": Answer.MET, "correct > 0.5": Answer.UNKNOWN, "correct >= 0.9": Answer.FAILED}


@pytest.mark.parametrize("left", ANSWERS)
@pytest.mark.parametrize("right", ANSWERS)
def test_and_is_the_worse_and_or_the_better(left, right):
    both, either = judge_gate(parse(f"{left} and {right}"), MIXED), judge_gate(parse(f"{left} or {right}"), MIXED)
    assert both.answer is min(ANSWERS[left], ANSWERS[right])
    assert either.answer is max(ANSWERS[left], ANSWERS[right])
    assert len(both.findings) == len(either.findings) == 2


def settle(verdict, *, kindly: bool):
    """What an unknown verdict turns out to be, at best or at worst."""
    if verdict.outcome is Outcome.UNKNOWN:
        verdict = made(2.0, target=verdict.target) if kindly else WRONG
    if verdict.target is Target.UNKNOWN:
        target = Target.EXECUTED if kindly else Target.NOT_EXECUTED
        verdict = verdict.model_copy(update={"target": target})
    if verdict.correct and verdict.speedup is None and verdict.latency_ms is None:
        verdict = verdict.model_copy(update={"speedup": 2.0 if kindly else 0.1})
    return verdict


@settings(max_examples=60)
@given(cells, st.sampled_from(["correct", "target", "fast_p(0.7)", "fast_p(0.7).inst"]), st.integers(0, 100))
def test_unknown_turns_decide_exactly_where_it_matters_what_they_are(trajectories, metric, bound):
    gate = parse(f"{metric} >= {bound}%")
    answer = judge_gate(gate, report(*trajectories)).answer
    best, worst = (
        judge_gate(gate, report(*([settle(verdict, kindly=kindly) for verdict in one] for one in trajectories))).answer
        for kindly in (True, False)
    )
    assert answer is (worst if best is worst else Answer.UNKNOWN)


@pytest.mark.parametrize("reason", ["budget", "stopped", "unmeasured"])
def test_turns_that_were_not_asked_for_are_unknown_and_their_number_is_told(reason):
    made_report = partial([made(1.0)] * 4, [made(1.0)] * 3, turns=8, reason=reason)
    assert made_report.cells[0].limits[-1].correct.turns == 7
    judged = judge_gate(parse("correct >= 90%"), made_report)
    (finding,) = judged.findings
    assert (judged.answer, finding.value) == (Answer.UNKNOWN, "43.8% (7 of 16)")
    assert finding.note == "9 unknown turns, 9 of them not asked for: up to 100.0%"
    assert judge_gate(parse("correct >= 40%"), made_report).answer is Answer.MET
    assert judge_gate(parse("correct.at(1) == 100%"), made_report).answer is Answer.MET
    (best,) = judge_gate(parse("best_speedup <= 2"), made_report).findings
    assert (best.answer, best.note) == (Answer.UNKNOWN, "9 turns of unknown speed, 9 of them not asked for")


def test_a_target_that_was_reached_leaves_nothing_unknown():
    reached = partial([made(1.0), made(1.3)], turns=8, reason="target_reached")
    assert judge_gate(parse("correct == 25%"), reached).answer is Answer.MET


def test_turns_that_were_not_selected_are_no_part_of_a_gate_which_says_so():
    some = partial([WRONG, made(1.0)], [made(1.0)], turns=3, reason="", unselected=[key(0, 2), key(1, 1), key(1, 2)])
    (finding,) = judge_gate(parse("correct >= 60%"), some).findings
    assert (finding.answer, finding.value) == (Answer.MET, "66.7% (2 of 3)")
    assert finding.note == "3 turns were not selected"
