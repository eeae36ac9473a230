"""A finished run of one language model on the primary suite: every variant, 4 trajectories, 8 turns, all judged."""

from __future__ import annotations

from pathlib import Path

from ptxbench.agent.dialogue import said
from ptxbench.agent.identity import ModelTerms, RunIdentity, suite_identity
from ptxbench.agent.prompt import first_messages, identity
from ptxbench.agent.turn_files import to_json
from ptxbench.cases import Case, load_suite
from ptxbench.models import PastTurn
from ptxbench.packs import load_pack
from ptxbench.records import Candidate, Exchange, Message, Reply, RunEvidence, TurnKey, Usage, prompt_sha256
from tests.conftest import ROOT
from tests.unit.factories import (
    make_baseline,
    make_build,
    make_call,
    make_evidence,
    make_record,
    make_run,
    make_timing,
    make_trial,
)

MODEL = "scripted"
TRAJECTORIES, TURNS = 4, 8
SPAN_NS, BASELINE_NS = 8_000_000, 8_400_000
SETTINGS = {"provider": "openai", "model": MODEL}
REASONING = "The epilogue waits for the last barrier, so the store of one tile can overlap the loads of the next. " * 60


def write_finished_run(folder: Path, sent: dict[str, object] | None = None) -> int:
    """Write the run; ``sent`` is how the model is asked. Returns the number of its turns.

    Not through the store, which has the disk confirm every file.
    """
    suite = load_suite(ROOT, "primary")
    cases = [case for case in suite.table if case.arch.name == "h100"]
    count = 0
    for case in cases:
        for variant in range(len(case.variants)):
            for trajectory in range(TRAJECTORIES):
                count += _trajectory(folder, case, variant, trajectory)
    run = RunIdentity(
        created_at="2026-11-29T16:00:00+00:00",
        ptxbench="0.1.0",
        suites={suite.name: suite_identity(suite.table)},
        turns={MODEL: TURNS},
        models={MODEL: ModelTerms.model_validate({"sent": sent, "knowledge": "full"})} if sent is not None else {},
    )
    (folder / "run.json").write_bytes(to_json(run))
    return count


def _trajectory(folder: Path, case: Case, variant: int, trajectory: int) -> int:
    pack = load_pack(ROOT, "h100", "full")
    opening = first_messages(case, case.variants[variant], pack)
    source = (ROOT / "generated" / "reference" / "h100" / case.name / "kernel.cu").read_text()
    history: list[PastTurn] = []
    for turn in range(TURNS):
        kernel = Candidate(source=f"{source}// {turn}\n")
        before = said(history[-1], history, ()) if history else ()
        added = (Message(role="user", content=f"Correct, 1.05x. {TURNS - turn} turns left."),) if history else opening
        exchange = Exchange(
            added=tuple(added),
            prompt_sha256=prompt_sha256([*before, *added]),
            prompt=identity(pack),
            sent=dict(SETTINGS),
            asked_at="2026-11-29T16:00:00+00:00",
            reply=Reply(
                text=f"```cuda\n{kernel.source}```",
                reasoning=REASONING,
                ended="stop",
                finish_reason="stop",
                usage=Usage(input_tokens=30_000, output_tokens=12_000, reasoning_tokens=4_000),
                cost_usd=0.1,
                cost_source="models_file",
                latency_s=60.0,
                model=MODEL,
            ),
        )
        key = TurnKey(model=MODEL, case=case.name, arch="h100", variant=variant, trajectory=trajectory, turn=turn)
        record = make_record(
            case=case,
            build=make_build(candidate_sha256=kernel.sha256),
            evidence=make_evidence(case, candidate_sha256=kernel.sha256, run=_run(case)),
            source_sha256=kernel.sha256,
            key=key,
            origin="model",
            variant_name=case.variants[variant],
            exchange=exchange,
            follows=turn - 1 if turn else None,
        )
        path = folder / "turns" / key.trajectory_id / f"turn{turn}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(record))
        path.with_suffix(".cu").write_text(kernel.source)
        history.append(PastTurn(record, kernel.source))
    return TURNS


def _run(case: Case) -> RunEvidence:
    """1.05x of the library, slowly enough to be plausible for every case."""
    trial = make_trial(checks=(make_call(case=case), make_call(23, case=case)), timing=make_timing(span_ns=SPAN_NS))
    quality = dict.fromkeys(case.output_shapes(), 0.002)
    baseline = make_baseline(
        library=case.baseline.library,
        call=case.baseline.call,
        span_ns=(BASELINE_NS,) * 150,
        drift_span_ns=(BASELINE_NS,) * 10,
        relative_rms=quality,
    )
    return make_run(trials=(trial,) * case.trials, baseline=baseline)
