from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.errors import InputError
from ptxbench.records import InfrastructureFault, TurnKey, TurnRecord
from ptxbench.report import CellKey, CellPlan, plans_of, summarize
from ptxbench.report.cell import AtLimit, BaselineUse
from ptxbench.report.cell import Interval as CellInterval
from ptxbench.report.summary import limits_of, unselected_beside
from ptxbench.verdict import judge_extraction_error, judge_infrastructure
from tests.unit.factories import (
    DEVICE,
    GEMM,
    digest,
    make_baseline,
    make_evidence,
    make_instructions,
    make_record,
    make_run,
    make_safety,
    make_timing,
    make_trial,
    suite_case,
)

GEMM_CELL = CellKey("reference", GEMM, "h100")


def at_speedup(speedup: float, turn: int, **changes: Any) -> TurnRecord:
    baseline = make_baseline(span_ns=(int(speedup * 800_000),) * 9, drift_span_ns=())
    return make_record(turn, evidence=make_evidence(run=make_run(baseline=baseline)), **changes)


def faulted(turn: int, **changes: Any) -> TurnRecord:
    fault = InfrastructureFault(kind="oracle_died", message="the oracle ended")
    return make_record(turn, build=None, evidence=None, fault=fault, verdict=judge_infrastructure(fault), **changes)


def unextracted(turn: int, **changes: Any) -> TurnRecord:
    return make_record(turn, build=None, evidence=None, verdict=judge_extraction_error("no code"), **changes)


def only_limit(*records: TurnRecord, turns: int) -> AtLimit:
    (cell,) = summarize(records, {GEMM_CELL: CellPlan(1, turns)})
    return cell.limits[-1]


def test_cells_are_sorted_and_carry_what_they_rest_on() -> None:
    other = suite_case("mha_bwd_d128")
    records = [make_record(case=other, evidence=None), make_record(model="zeta"), make_record(1), make_record()]
    cells = summarize(records)
    assert [tuple(cell.key) for cell in cells] == [
        ("reference", GEMM, "h100"),
        ("reference", "mha_bwd_d128", "h100"),
        ("zeta", GEMM, "h100"),
    ]
    gemm = cells[0]
    assert (gemm.turns, gemm.trajectories, gemm.turns_per_trajectory) == (2, 1, 2)
    assert (gemm.devices, gemm.measured) == (("NVIDIA H200",), ("2026-11-29",))
    assert gemm.baselines == (BaselineUse(library="cublas", version="13.1.0", call="torch.matmul"),)
    assert gemm.evidence_origins == {"measured": 2}
    assert gemm.outcomes == {"correct": 2}
    assert cells[1].evidence_origins == {"none": 1}
    assert (cells[1].devices, cells[1].baselines) == ((), ())


@pytest.mark.parametrize(
    ("turns", "limits"), [(1, (1,)), (2, (1, 2)), (4, (1, 4)), (5, (1, 4, 5)), (8, (1, 4, 8)), (9, (1, 4, 8, 9))]
)
def test_limits_that_ran(turns: int, limits: tuple[int, ...]) -> None:
    assert limits_of(turns) == limits


def test_rates_are_over_the_plan() -> None:
    (cell,) = summarize([make_record(), unextracted(1)], {GEMM_CELL: CellPlan(trajectories=4, turns=8)})
    assert [(at.limit, at.correct.hits, at.correct.turns) for at in cell.limits] == [(1, 1, 4), (4, 1, 16), (8, 1, 32)]
    assert cell.limits[0].correct.value == 0.25


def test_a_plan_never_hides_what_ran() -> None:
    records = [make_record(trajectory=0), make_record(trajectory=1)]
    (cell,) = summarize(records, {GEMM_CELL: CellPlan(trajectories=1, turns=1)})
    assert cell.limits[0].correct.turns == 2


def test_without_a_plan_the_models_longest_trajectory_counts() -> None:
    records = [make_record(0), make_record(3), make_record(0, case=suite_case("mha_bwd_d128"), evidence=None)]
    gemm, attention = summarize(records)
    assert gemm.limits[-1].correct.turns == attention.limits[-1].correct.turns == 4


def test_best_speedups_and_fast_p() -> None:
    blind = make_evidence(
        run=make_run(baseline=make_baseline(span_ns=(880_000,), drift_span_ns=())),
        instructions=make_instructions(outputs_match=False),
    )
    records = [at_speedup(0.5, 0), at_speedup(0.9, 1), make_record(2, evidence=blind)]
    at = only_limit(*records, turns=4)
    assert (at.best_speedup, at.target_best_speedup) == (1.1, 0.9)
    assert [(fast.p, fast.any.hits, fast.inst.hits) for fast in at.fast_p] == [
        (0.5, 2, 1),
        (0.8, 2, 1),
        (1.0, 1, 0),
        (1.2, 0, 0),
    ]
    assert [fast.inst.unknown for fast in at.fast_p] == [1, 1, 1, 0]
    assert (at.target.hits, at.target.unknown, at.correct.unknown) == (2, 1, 0)


def test_reaching_the_target_ends_a_trajectory_both_ways() -> None:
    at = only_limit(at_speedup(0.9, 0), at_speedup(1.2, 1), turns=8)
    assert (at.correct.hits, at.correct.turns, at.correct.unneeded) == (2, 8, 6)
    assert (at.correct.value, at.correct.value_of_needed) == (0.25, 1.0)


def test_a_trajectory_that_went_on_did_not_end() -> None:
    at = only_limit(at_speedup(1.3, 0), at_speedup(0.9, 1), turns=8)
    assert at.correct.unneeded == 0


def test_infrastructure_is_counted_apart() -> None:
    (cell,) = summarize([make_record(0), faulted(1), unextracted(2)])
    assert cell.excluded == 1
    assert cell.outcomes == {"correct": 1, "extraction_error": 1, "infrastructure_error": 1}
    assert (cell.limits[-1].correct.hits, cell.limits[-1].correct.turns) == (1, 2)


def test_unknown_is_counted_apart_and_never_a_hit() -> None:
    unprofiled = make_evidence(instructions=make_instructions(outputs_match=False))
    (cell,) = summarize([make_record(0, evidence=None), make_record(1, evidence=unprofiled), unextracted(2)])
    assert (cell.unknown_outcomes, cell.unknown_targets) == (1, 1)
    at = cell.limits[-1]
    assert (at.correct.hits, at.correct.unknown, at.correct.turns) == (1, 1, 3)
    assert (at.target.hits, at.target.unknown) == (0, 2)


def test_evidence_of_something_else_is_not_what_a_cell_rests_on() -> None:
    foreign = make_evidence(cubin_sha256=digest("f"))
    (cell,) = summarize([make_record(evidence=foreign, evidence_origin="replayed")])
    assert (cell.devices, cell.measured, cell.baselines) == ((), (), ())
    assert cell.evidence_origins == {"none": 1}


def test_devices_days_flags_and_findings_are_collected() -> None:
    h100 = DEVICE.model_copy(update={"name": "NVIDIA H100 80GB HBM3"})
    stray = make_run(trials=(make_trial(timing=make_timing(stray=1)),) * 3)
    records = [
        make_record(0, evidence=make_evidence(device=h100, measured_at="2026-11-30T01:00:00Z")),
        make_record(1, evidence=make_evidence(run=stray)),
        make_record(2, evidence=make_evidence(safety=(make_safety("memcheck", "Invalid read"),))),
    ]
    (cell,) = summarize(records)
    assert cell.devices == ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    assert cell.measured == ("2026-11-29", "2026-11-30")
    assert (cell.flags, cell.unsafe) == ({"stray_activity": 1}, 1)


def test_a_turn_twice_is_one_turn_and_two_answers_are_an_error() -> None:
    (cell,) = summarize([make_record(), make_record()])
    assert cell.turns == 1
    with pytest.raises(InputError, match="turn reference-gemm_n7168_k5120-h100-v0-t0-turn0: expected one record"):
        summarize([make_record(), unextracted(0)])


def test_nothing() -> None:
    assert summarize([]) == ()


POOL = tuple(
    record
    for trajectory in range(2)
    for record in (
        at_speedup(0.9, 0, trajectory=trajectory),
        make_record(1, trajectory=trajectory, evidence=None),
        faulted(2, trajectory=trajectory),
        unextracted(3, trajectory=trajectory),
        at_speedup(1.3, 4, trajectory=trajectory),
    )
)


@given(st.lists(st.sampled_from(POOL), max_size=14), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_counts_add_up(records: list[TurnRecord], random: Any) -> None:
    cells = summarize(records)
    random.shuffle(records)
    assert summarize(records) == cells
    for cell in cells:
        assert sum(cell.outcomes.values()) == sum(cell.evidence_origins.values()) == cell.turns
        for at in cell.limits:
            rates = [at.correct, at.target, *(rate for fast in at.fast_p for rate in (fast.any, fast.inst))]
            assert all(0 <= rate.hits + rate.unknown <= rate.turns for rate in rates)
            assert all(0 <= rate.value <= rate.value_of_needed <= 1 for rate in rates)


def test_each_cell_has_its_own_plan():
    def key(model: str, trajectory: int, turn: int, variant: int = 0) -> TurnKey:
        return TurnKey(model=model, case="c", arch="h100", variant=variant, trajectory=trajectory, turn=turn)

    keys = [key("a", trajectory, turn) for trajectory in range(2) for turn in range(3)]
    keys += [key("a", 0, 0, variant=1), key("b", 0, 0)]
    assert plans_of(keys) == {
        CellKey("a", "c", "h100"): CellPlan(3, 3, {0: 2, 1: 1}),
        CellKey("b", "c", "h100"): CellPlan(1, 1, {0: 1}),
    }
    assert plans_of([]) == {}


def test_what_was_not_selected_beside_a_selection() -> None:
    def key(trajectory: int, turn: int) -> TurnKey:
        return TurnKey(model="a", case="c", arch="h100", variant=0, trajectory=trajectory, turn=turn)

    # The cell counts to its last selected turn, and the trajectories that have one.
    found = unselected_beside([key(0, 1), key(0, 3), key(2, 0)])
    assert found == [key(0, 0), key(0, 2), *(key(2, turn) for turn in (1, 2, 3))]
    assert unselected_beside([key(0, 0), key(0, 1)]) == []


def test_the_fastest_turn_is_that_of_the_best_speedup() -> None:
    slow, fast = make_timing(span_ns=900_000), make_timing(span_ns=700_000)
    records = [
        make_record(0, evidence=make_evidence(run=make_run(trials=(make_trial(timing=slow),) * 3))),
        make_record(1, evidence=make_evidence(run=make_run(trials=(make_trial(timing=fast),) * 3))),
        make_record(2, evidence=make_evidence(run=make_run(trials=(make_trial(timing=fast),) * 3))),
    ]
    (cell,) = summarize(records)
    assert cell.fastest is not None
    assert cell.fastest.turn == str(records[1].key)
    assert cell.fastest.speedup == cell.limits[-1].best_speedup
    assert (cell.fastest.latency_ms, cell.fastest.latency_interval_ms) == (0.7, CellInterval(low=0.7, high=0.7))
    verdict = records[1].verdict
    assert (cell.fastest.roofline_share, cell.fastest.useful_share) == (verdict.roofline_share, verdict.useful_share)
    assert cell.fastest.roofline_share is not None


def test_a_latency_without_a_speedup_is_no_fastest_turn() -> None:
    run = make_run(trials=(make_trial(timing=make_timing(stray=1)),) * 3)
    (cell,) = summarize([make_record(evidence=make_evidence(run=run))])
    assert cell.fastest is None
