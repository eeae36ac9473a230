"""A run as a public collection, and back."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from ptxbench.agent import RunStore, suite_identity
from ptxbench.agent.fault_record import fault_record
from ptxbench.cases import load_suite
from ptxbench.errors import InputError
from ptxbench.records import (
    Build,
    BuildStatus,
    Candidate,
    Evidence,
    Exchange,
    InfrastructureFault,
    Message,
    Outcome,
    PromptIdentity,
    Reply,
    RunStatus,
    Target,
    TrajectoryEnd,
    TurnKey,
    TurnRecord,
)
from ptxbench.report.exporting import RUNS, Exported, export_run
from ptxbench.report.importing import import_run
from ptxbench.report.public_results import STATUS
from ptxbench.trace import Trace, load_definition, load_solution, load_traces, load_workloads
from ptxbench.trace.trace_set import read_trace_set
from ptxbench.verdict import judge_extraction_error
from tests.support.trace_sets import ROOT, edit_json, edit_line
from tests.unit.factories import (
    GEMM,
    digest,
    make_build,
    make_call,
    make_comparison,
    make_evidence,
    make_record,
    make_run,
    make_safety,
    make_trial,
    suite_case,
)
from tests.unit.trace import public_models


def wrong(**changes: Any) -> Any:
    """Evidence whose first trial has one output that is not as it should be."""
    call = make_call(outputs=(make_comparison(**changes),))
    return make_evidence(run=make_run(trials=(make_trial(checks=(call,)),) * 3))


TURNS: list[tuple[Outcome, str, dict[str, Any]]] = [
    (Outcome.CORRECT, "PASSED", {}),
    (Outcome.NUMERICAL_ERROR, "INCORRECT_NUMERICAL", {"evidence": wrong(mismatched=7)}),
    (Outcome.WRONG_SHAPE_OR_DTYPE, "INCORRECT_SHAPE", {"evidence": wrong(shape=(1, 1), elements=1)}),
    (Outcome.WRONG_SHAPE_OR_DTYPE, "INCORRECT_DTYPE", {"evidence": wrong(dtype="float16")}),
    (
        Outcome.COMPILE_ERROR,
        "COMPILE_ERROR",
        {"build": make_build(status=BuildStatus.COMPILE_ERROR, so_sha256=None, cubins=()), "evidence": None},
    ),
    (Outcome.MEMORY_ERROR, "RUNTIME_ERROR", {"evidence": make_evidence(safety=(make_safety("memcheck", "bad"),))}),
    (Outcome.TIMEOUT, "TIMEOUT", {"evidence": make_evidence(run=make_run(status=RunStatus.TIMEOUT, trials=()))}),
    (Outcome.UNKNOWN, "", {"evidence": None}),
]


def record_of(turn: int, **changes: Any) -> tuple[TurnRecord, Candidate]:
    candidate = Candidate(source=f"// kernel of turn {turn}\n")
    own = {"candidate_sha256": candidate.sha256}
    changes = {
        name: value.model_copy(update=own) if isinstance(value, Build | Evidence) else value
        for name, value in changes.items()
    }
    return make_record(turn, model="claude", source_sha256=candidate.sha256, **changes), candidate


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    """A run with a turn of every outcome that the schema knows, one of none, and one that was not judged."""
    identity = {"primary": suite_identity(load_suite(ROOT, "primary").table)}
    store = RunStore.open(tmp_path / "monday", identity, {"claude": 12})
    for turn, (outcome, _, changes) in enumerate(TURNS):
        record, candidate = record_of(turn, **changes)
        assert record.verdict.outcome is outcome, record.verdict.message
        store.save(record, candidate)
    empty = make_record(
        len(TURNS),
        model="claude",
        source_sha256=None,
        build=None,
        evidence=None,
        verdict=judge_extraction_error("no code"),
    )
    store.save(empty, None)
    key = empty.key.model_copy(update={"turn": 9})
    fault = InfrastructureFault(kind="disk_full", message="full")
    case = suite_case()
    names = {"definition": case.definition.name, "workload_uuid": case.workload.uuid, "variant_name": "none"}
    store.save_fault(fault_record(key, fault, **names))
    store.save_end(TrajectoryEnd(key=key.model_copy(update={"turn": 10}), reason="context_exhausted", message="full"))
    return store


def exported(run: RunStore, tmp_path: Path) -> tuple[Path, Exported]:
    into = tmp_path / "collection"
    return into, export_run(ROOT, str(run.folder), into)


def traces_of(collection: Path) -> list[Trace]:
    return [trace for path in sorted((collection / "traces").rglob("*.jsonl")) for trace in load_traces(path)]


def test_every_turn_with_a_word_for_it_is_a_trace(run: RunStore, tmp_path: Path) -> None:
    into, found = exported(run, tmp_path)
    assert (found.definitions, found.workloads, found.solutions, found.traces) == (1, 1, len(TURNS), len(TURNS) - 1)
    case = suite_case()
    assert load_definition(into / "definitions" / "gemm" / f"{GEMM}.json") == case.definition
    (workload,) = load_workloads(into / "workloads" / "gemm" / f"{GEMM}.jsonl")
    assert workload.workload == case.workload
    statuses = [trace.evaluation.status for trace in traces_of(into) if trace.evaluation]
    assert statuses == [status for _, status, _ in TURNS if status]
    left_out = "\n".join(found.left_out)
    assert "turn7: unknown, for which the schema has no status" in left_out
    assert "turn8: extraction_error" in left_out
    assert "turn9: the machinery failed" in left_out


def test_what_a_trace_says(run: RunStore, tmp_path: Path) -> None:
    into, _ = exported(run, tmp_path)
    passed, numerical, *_ = traces_of(into)
    evaluation = passed.evaluation
    assert evaluation is not None
    assert evaluation.performance is not None
    assert evaluation.correctness is not None
    record = run.record(TurnKey(model="claude", case=GEMM, arch="h100", variant=0, trajectory=0, turn=0))
    assert record is not None
    verdict = record.verdict
    assert evaluation.performance.latency_ms == verdict.latency_ms
    assert evaluation.performance.reference_latency_ms == verdict.baseline_ms
    assert evaluation.performance.speedup_factor == verdict.speedup
    assert evaluation.environment.hardware == "NVIDIA H200"
    assert evaluation.environment.libs["cublas"] == "13.1.0"
    extra = evaluation.correctness.extra
    assert extra is not None
    assert extra["ptxbench"]["baseline"] == "cublas 13.1.0 (torch.matmul)"  # type: ignore[index,call-overload]
    assert extra["ptxbench"]["target_instruction"] == Target.EXECUTED.value  # type: ignore[index,call-overload]
    assert "correct [check.passed]" in evaluation.log
    assert numerical.evaluation is not None
    assert numerical.evaluation.performance is None
    compiled = next(t.evaluation for t in traces_of(into) if t.evaluation and t.evaluation.status == "COMPILE_ERROR")
    assert compiled.environment.hardware == "none: compiled for h100, not run"


def test_solutions_are_the_kernels(run: RunStore, tmp_path: Path) -> None:
    into, _ = exported(run, tmp_path)
    found = [load_solution(path) for path in sorted((into / "solutions").rglob("*.json"))]
    assert [solution.entry_source.content for solution in found] == [
        f"// kernel of turn {n}\n" for n in range(len(TURNS))
    ]
    assert {(s.author, s.spec.language, s.spec.entry_symbol, s.definition) for s in found} == {
        ("claude", "cuda", "run", GEMM)
    }
    assert found[0].name == str(next(iter(run.turn_keys())))


def test_others_read_all_of_it(run: RunStore, tmp_path: Path) -> None:
    into, _ = exported(run, tmp_path)
    public = public_models.load()
    for kind, model in (("definitions", public.Definition), ("solutions", public.Solution)):
        for path in (into / kind).rglob("*.json"):
            model.model_validate_json(path.read_text())
    lines = [line for path in into.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == len(TURNS)
    for line in lines:
        public.Trace.model_validate_json(line)


def test_every_outcome_has_a_word_or_none() -> None:
    silent = {Outcome.EXTRACTION_ERROR, Outcome.UNKNOWN, Outcome.INFRASTRUCTURE_ERROR}
    assert set(STATUS) | silent == set(Outcome)
    assert not set(STATUS) & silent


def test_it_comes_back(run: RunStore, tmp_path: Path) -> None:
    into, _ = exported(run, tmp_path)
    back = RunStore.read(import_run(tmp_path, into, str(tmp_path / "back")))
    assert list(back.entries()) == list(run.entries())
    assert list(back.faults()) == list(run.faults())
    assert list(back.ends()) == list(run.ends())
    assert back.identity == run.identity
    assert RunStore.read(into / RUNS / "monday").identity == run.identity


def test_todays_rules_judge(run: RunStore, tmp_path: Path) -> None:
    record, candidate = record_of(11)
    stale = record.model_copy(update={"verdict": record.verdict.model_copy(update={"speedup": 99.0})})
    run.save(stale, candidate)
    into, _ = exported(run, tmp_path)
    assert RunStore.read(into / RUNS / "monday").record(record.key) == record


def test_a_result_that_is_not_a_number_comes_back(run: RunStore, tmp_path: Path) -> None:
    errors = dict.fromkeys(("max_abs_error", "max_rel_error", "rms_error"), math.nan)
    record, candidate = record_of(11, evidence=wrong(nan=7, mismatched=7, **errors))
    assert record.verdict.outcome is Outcome.NUMERICAL_ERROR
    run.save(record, candidate)
    into, _ = exported(run, tmp_path)
    back = RunStore.read(import_run(tmp_path, into)).record(record.key)
    assert back is not None
    assert back.model_dump_json() == record.model_dump_json()


def test_its_own_name_is_where_it_goes(run: RunStore, tmp_path: Path) -> None:
    into, _ = exported(run, tmp_path)
    assert import_run(tmp_path, into) == tmp_path / "generated" / "monday"
    with pytest.raises(InputError, match="--run monday: expected a new run"):
        import_run(tmp_path, into)


def test_conversations_stay_at_home(run: RunStore, tmp_path: Path) -> None:
    said = ["a question of ours", "an answer of theirs"]
    identity = PromptIdentity(template="1", pack="h100 1", pack_sha256=digest("a"), level="full")
    reply = Reply(text=said[1], ended="stop", finish_reason="stop", latency_s=1.0, model="m")
    question = (Message(role="user", content=said[0]),)
    exchange = Exchange(added=question, prompt_sha256=digest("b"), prompt=identity, asked_at="2026", reply=reply)
    record, candidate = record_of(11, exchange=exchange, origin="model")
    run.save(record, candidate)
    for fault in run.faults():
        run.save_fault(fault.model_copy(update={"exchange": exchange}))
    key = record.key.model_copy(update={"trajectory": 1})
    run.save_end(TrajectoryEnd(key=key, reason="context_exhausted", message="full", exchange=exchange))
    told = [path for path in run.folder.rglob("*") if path.is_file() and said[1] in path.read_text()]
    assert len(told) == 3
    into, _ = exported(run, tmp_path)
    for path in into.rglob("*"):
        if path.is_file():
            assert not any(words in path.read_text() for words in said), path
    copy = RunStore.read(into / RUNS / "monday").record(record.key)
    assert copy is not None
    assert copy.exchange is None


@pytest.mark.parametrize("what", ["file", "folder"])
def test_nothing_is_written_over(run: RunStore, tmp_path: Path, what: str) -> None:
    into = tmp_path / "collection"
    if what == "file":
        into.write_text("")
    else:
        (into / "x").mkdir(parents=True)
    with pytest.raises(InputError, match="expected a new or empty folder"):
        export_run(ROOT, str(run.folder), into)


def test_a_damaged_turn_is_named(run: RunStore, tmp_path: Path) -> None:
    path = run.turn_path(run.turn_keys()[0])
    path.with_suffix(".cu").write_text("another")
    _, found = exported(run, tmp_path)
    assert found.traces == len(TURNS) - 2
    assert any(str(path) in line and "damaged" in line for line in found.left_out)


def tampered_trace(into: Path) -> None:
    (path,) = (into / "traces").rglob("*.jsonl")
    edit_line(path, lambda line: line["evaluation"]["performance"].update(speedup_factor=99.0))


def foreign_trace(into: Path) -> None:
    (path,) = (into / "traces").rglob("*.jsonl")
    line = json.loads(path.read_text().splitlines()[0]) | {"solution": "mine"}
    path.write_text(path.read_text() + json.dumps(line) + "\n")


def second_trace(into: Path) -> None:
    """Another result of a turn, in front of its own."""
    (path,) = (into / "traces").rglob("*.jsonl")
    line = json.loads(path.read_text().splitlines()[0])
    line["evaluation"]["performance"]["speedup_factor"] = 99.0
    path.write_text(json.dumps(line) + "\n" + path.read_text())


def piped_trace(into: Path) -> None:
    os.mkfifo(into / "traces" / "pipe.jsonl")


def tampered_record(into: Path) -> None:
    path = next((into / RUNS).rglob("turn0.json"))
    edit_json(path, lambda record: record["verdict"].update(speedup=99.0))


def no_workload(into: Path) -> None:
    (path,) = (into / "workloads").rglob("*.jsonl")
    edit_line(path, lambda line: line["workload"].update(uuid="other"))


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (tampered_trace, "expected the result of claude.*turn0 as its record has it"),
        (tampered_record, "expected the result of claude.*turn0 as its record has it"),
        (second_trace, "expected one result of each turn, found claude.*turn0 again"),
        (piped_trace, "pipe.jsonl: expected a regular file"),
        (foreign_trace, "expected results of the exported turns alone, found one of mine"),
        (no_workload, "expected the workload .* of gemm_n7168_k5120, of which it holds results, found none"),
        (
            lambda into: next((into / RUNS).rglob("turn0.cu")).write_text("x"),
            "expected a whole record, found: its source",
        ),
        (
            lambda into: (into / RUNS / "monday" / "run.json").unlink(),
            "expected a collection that `ptxbench export` wrote",
        ),
    ],
)
def test_an_export_that_was_changed_is_refused(run: RunStore, tmp_path: Path, tamper: Any, message: str) -> None:
    into, _ = exported(run, tmp_path)
    read_trace_set(into)
    tamper(into)
    with pytest.raises(InputError, match=message):
        import_run(tmp_path, into)
    assert not (tmp_path / "generated").exists()
