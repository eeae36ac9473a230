from ptxbench.records import InfrastructureFault
from ptxbench.report import build_report, turn_properties
from ptxbench.report.junit import suite_properties
from ptxbench.verdict import judge_infrastructure
from tests.unit.factories import make_evidence, make_record, make_run, make_timing, make_trial


def test_a_measured_turn() -> None:
    properties = dict(turn_properties(make_record(3)))
    assert (
        properties.items()
        >= {
            "ptxbench.model": "reference",
            "ptxbench.case": "gemm_n7168_k5120",
            "ptxbench.arch": "h100",
            "ptxbench.variant": "none",
            "ptxbench.trajectory": "0",
            "ptxbench.turn": "3",
            "ptxbench.outcome": "correct",
            "ptxbench.rule": "check.passed",
            "ptxbench.target": "executed",
            "ptxbench.safe": "yes",
            "ptxbench.safe.memcheck": "yes",
            "ptxbench.safe.racecheck": "not_run",
            "ptxbench.speedup": "0.925",
            "ptxbench.latency_ms": "0.8",
            "ptxbench.baseline": "cublas 13.1.0 (torch.matmul)",
            "ptxbench.evidence": "measured",
            "ptxbench.device": "NVIDIA H200",
        }.items()
    )
    assert "ptxbench.flags" not in properties
    assert "ptxbench.infrastructure_fault" not in properties


def test_names_are_unique_and_values_are_text() -> None:
    properties = turn_properties(make_record())
    assert len(dict(properties)) == len(properties)
    assert all(isinstance(value, str) for _, value in properties)


def test_flags_are_listed() -> None:
    run = make_run(trials=(make_trial(timing=make_timing(stray=1, excess_ns=200_000)),) * 3)
    properties = dict(turn_properties(make_record(evidence=make_evidence(run=run))))
    assert properties["ptxbench.flags"] == "clock_disagreement stray_activity"


def test_a_faulted_turn_has_no_numbers() -> None:
    fault = InfrastructureFault(kind="oracle_died", message="the oracle ended")
    record = make_record(build=None, evidence=None, fault=fault, verdict=judge_infrastructure(fault))
    properties = dict(turn_properties(record))
    assert properties["ptxbench.infrastructure_fault"] == "oracle_died"
    assert properties["ptxbench.outcome"] == "infrastructure_error"
    assert not {"ptxbench.speedup", "ptxbench.device", "ptxbench.cubin_sha256", "ptxbench.baseline"} & properties.keys()


def test_a_suite_says_what_its_turns_were_made_with() -> None:
    properties = dict(suite_properties(build_report([make_record(), make_record(1)])))
    assert (
        properties.items()
        >= {
            "ptxbench.models": "reference",
            "ptxbench.archs": "h100",
            "ptxbench.turns": "2",
            "ptxbench.turns.correct": "2",
            "ptxbench.turns.unknown": "0",
            "ptxbench.turns.infrastructure": "0",
            "ptxbench.baselines": "cublas 13.1.0 (torch.matmul)",
            "ptxbench.devices": "NVIDIA H200",
            "ptxbench.drivers": "580.159",
            "ptxbench.cuda": "13.0",
            "ptxbench.compilers": "nvcc 13.0.88",
            "ptxbench.harnesses": "0.1.0",
        }.items()
    )
    assert "ptxbench.packs" not in properties
    assert all(properties.values())
