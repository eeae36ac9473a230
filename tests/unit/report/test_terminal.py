import re
from typing import Any

import pytest

from ptxbench.records import BuildStatus, InfrastructureFault
from ptxbench.report import Cell, CellKey, CellPlan, render, summarize
from ptxbench.report.cell import Rate
from ptxbench.report.terminal import rate_text, shorten
from ptxbench.verdict import judge_infrastructure
from tests.unit.factories import (
    GEMM,
    make_baseline,
    make_evidence,
    make_instructions,
    make_record,
    make_run,
    suite_case,
    unbuilt,
)
from tests.unit.report.reports import WRONG, key, made, partial, report

FORWARD = "mha_with_lse_d128"


def cells_of_a_session() -> tuple[Cell, ...]:
    fault = InfrastructureFault(kind="oracle_died", message="the oracle ended")
    fast = make_run(baseline=make_baseline(span_ns=(1_000_000,), drift_span_ns=()))
    records = [
        *(make_record(turn) for turn in range(3)),
        make_record(0, trajectory=1, evidence=make_evidence(run=fast)),
        make_record(0, case=suite_case(FORWARD), evidence=None),
        make_record(0, case=suite_case("mha_bwd_d128"), build=unbuilt(BuildStatus.COMPILE_ERROR), evidence=None),
        make_record(0, case=suite_case("mha_bwd_d128_causal"), build=None, evidence=None, fault=fault,
                    verdict=judge_infrastructure(fault)),
        make_record(0, model="replayed", evidence_origin="replayed"),
    ]  # fmt: skip
    names = {GEMM: 2, FORWARD: 1, "mha_bwd_d128": 1, "mha_bwd_d128_causal": 1}
    plans = {CellKey("reference", name, "h100"): CellPlan(count, 8) for name, count in names.items()}
    return summarize(records, plans)


FASTEST = ["0.8000", "0.8000-0.8000", "70.2", "?"]
"""Of ``make_record()`` with an unknown target indicator."""


def text_of(cells: tuple[Cell, ...], width: int = 120) -> str:
    return "\n".join(render(cells, width))


def sentences(text: str) -> str:
    return re.sub(r"\s+", " ", text)


TABLE = """\
reference on h100
                  correct %  target %  best speedup             fast_p %        fast_p.inst %
case                    <=1       <=1    any target    0.5   0.8 1.0 1.2    0.5   0.8 1.0 1.2
gemm_n7168_k5120      100.0     100.0  0.925  0.925  100.0 100.0   -   -  100.0 100.0   -   -
                                      fastest turn            turns
case                  ms           95% %SOL useful  N unknown infra
gemm_n7168_k5120  0.8000 0.8000-0.8000 70.2   0.00  1       -     -
Evidence: 1 turn measured in this run (device: NVIDIA H200; measured 2026-11-29).
Baseline: cublas 13.1.0 (torch.matmul) for gemm_n7168_k5120.
N: trajectories x turns, less turns excluded for infrastructure faults; a turn that never happened
  counts as not correct. target: correct, and the architecture's own instructions are known to have
  executed. Speedups and fast_p are over all N turns. -: none. ?: none known, and an unknown keeps
  that from meaning zero."""


def test_the_whole_table() -> None:
    assert text_of(summarize([make_record()]), 100) == TABLE


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 400])
def test_every_width_shows_every_number(width: int) -> None:
    lines = render(cells_of_a_session(), width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    wide = render(cells_of_a_session(), 400)
    numbers = sorted(re.findall(r"\d+\.\d", " ".join(line for line in wide if line.startswith(("gemm", "mha")))))
    found = sorted(re.findall(r"\d+\.\d", " ".join(line for line in lines if line.startswith(("gemm", "mha")))))
    assert found == numbers


def test_narrow_terminals_get_the_narrowest_table_that_is_whole() -> None:
    assert render(cells_of_a_session(), 10) == render(cells_of_a_session(), 60)


def test_the_report_is_plain_ascii() -> None:
    assert text_of(cells_of_a_session()).isascii()


def test_notes_say_where_evidence_comes_from_and_what_is_left_out() -> None:
    text = sentences(text_of(cells_of_a_session()))
    for sentence in (
        "Evidence: 4 turns measured in this run, 3 turns without evidence (device: NVIDIA H200; measured 2026-11-29).",
        "Evidence: 1 turn re-judged from stored evidence (device: NVIDIA H200; measured 2026-11-29).",
        "Baseline: cublas 13.1.0 (torch.matmul) for gemm_n7168_k5120.",
        "Not correct: mha_bwd_d128: 1 compile_error of 1 turn.",
        "Unknown: 1 turn without a known outcome, 0 correct turns without a known target indicator;",
        "Infrastructure: 1 turn could not be judged and left out of N.",
        "without the turns that were not needed: gemm_n7168_k5120 (N 9) correct 44.4, target 44.4.",
    ):
        assert sentence in text


def test_a_quiet_session_has_no_notes_of_trouble() -> None:
    text = text_of(summarize([make_record()]))
    for word in ("Unknown:", "Infrastructure:", "Not correct:", "Ended early", "Remarks"):
        assert word not in text


def test_remarks_are_counted() -> None:
    run = make_run(baseline=make_baseline(drift_span_ns=(830_000,)), trials=make_run().trials)
    text = text_of(summarize([make_record(turn, evidence=make_evidence(run=run)) for turn in range(2)]))
    assert "Remarks (turns): baseline_drift 2." in text


def rows_of(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith(("gemm", "mha"))}


def test_zero_is_a_dash_and_unknown_is_not_zero() -> None:
    rows = rows_of(text_of(cells_of_a_session(), 400).split("\n\n")[0])
    assert rows["mha_bwd_d128"] == ["-"] * 20 + ["8", "-", "-"]
    assert rows[FORWARD] == ["?"] * 20 + ["8", "1", "-"]
    assert rows["mha_bwd_d128_causal"][0] == "?"
    assert rows["mha_bwd_d128_causal"][-3:] == ["7", "-", "1"]


def test_an_unknown_target_is_a_question_mark_beside_a_known_rate() -> None:
    evidence = make_evidence(instructions=make_instructions(outputs_match=False))
    row = rows_of(text_of(summarize([make_record(evidence=evidence)]), 400))[GEMM]
    assert row == ["100.0", "?", "0.925", "?", "100.0", "100.0", "-", "-", "?", "?", "-", "-", *FASTEST, "1", "1", "-"]


def test_cells_with_fewer_turns_leave_higher_limits_empty() -> None:
    records = [make_record(), make_record(case=suite_case(FORWARD), build=unbuilt(BuildStatus.SCREENED), evidence=None)]
    plans = {CellKey("reference", GEMM, "h100"): CellPlan(1, 4), CellKey("reference", FORWARD, "h100"): CellPlan(1, 1)}
    rows = rows_of(text_of(summarize(records, plans), 400))
    assert len(rows[GEMM]) == len(rows[FORWARD]) + 2


def test_long_names_keep_both_ends() -> None:
    assert shorten("gqa_ragged_prefill_causal_h32_kv4_d128", 20) == "gqa_ragge.._kv4_d128"
    assert shorten("short", 5) == "short"
    model = "file_" + "x" * 200 + "_kernel"
    assert max(map(len, render(summarize([make_record(model=model)]), 80))) <= 80


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hits": 1, "turns": 3}, "33.3"),
        ({"hits": 0, "turns": 3}, "-"),
        ({"hits": 0, "turns": 3, "unknown": 1}, "?"),
        ({"hits": 1, "turns": 3, "unknown": 1}, "33.3"),
        ({"hits": 0, "turns": 0}, "?"),
    ],
)
def test_rate_text(changes: dict[str, Any], text: str) -> None:
    values: dict[str, Any] = {"unneeded": 0, "unknown": 0, "value": 0.0, "value_of_needed": 0.0}
    assert rate_text(Rate(**{**values, **changes})) == text


def test_no_cells_no_lines() -> None:
    assert render((), 80) == []


def test_a_speed_that_nobody_knows_is_a_question_mark() -> None:
    untimed = report([made(measured=False), WRONG])
    row = rows_of(text_of(untimed.cells, 400))[GEMM]
    assert row == ["100.0", "50.0", "100.0", "50.0", *["?"] * 14, "2", "-", "-"]
    assert [fast.any.unknown for fast in untimed.cells[0].limits[-1].fast_p] == [1, 1, 1, 1]
    assert "0 correct turns without a known target indicator, 1 correct turn without a known speed; " in sentences(
        text_of(untimed.cells)
    )
    withheld = rows_of(text_of(report([made()]).cells, 400))[GEMM]
    assert withheld == ["100.0", "100.0", *["-"] * 14, "1", "-", "-"]


def test_turns_that_were_not_selected_are_told() -> None:
    cells = partial([made(1.0)], turns=3, reason="", unselected=[key(0, 1), key(0, 2)]).cells
    assert "Selected: 2 turns of these trajectories were not selected and are left out of N." in sentences(
        text_of(cells)
    )
