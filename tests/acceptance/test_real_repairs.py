"""Real repairs of a real model's failures: from the stored runs to the same dataset each time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from ptxbench.adapt.model import Repair, read_lines
from ptxbench.agent import RunStore
from ptxbench.cases import load_suite
from ptxbench.cli import main
from ptxbench.verdict import judge
from tests.conftest import ROOT

EXAMPLES = ROOT / "generated" / "examples"
REPAIRS = EXAMPLES / "claude-base-designs-repair"
RUNS = (REPAIRS, EXAMPLES / "claude-base-forward-repair")


def build(out: Path) -> Path:
    given = ["--recipe", REPAIRS / "recipe.yaml", "--from", REPAIRS, "--from", REPAIRS / "rationales", "--out", out]
    assert main(["fixit", "build", *map(str, (EXAMPLES / "claude-base-designs", *given))]) == 0
    return out


def test_a_dataset_of_them_is_the_same_twice(tmp_path: Path) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two")
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in two.iterdir())
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    records = [json.loads(line) for line in (one / "train.jsonl").read_text().splitlines()]
    assert Counter(record["outcome"] for record in records) == {"compile_error": 5}
    for record in records:
        assert [message["training"] for message in record["messages"]] == [False, False, False, False, True]
        assert record["target"] == "executed"


def test_each_is_correct_by_the_evidence_of_its_run() -> None:
    suite, kept = load_suite(ROOT, "all"), 0
    for run in RUNS:
        turns = {stored.record.key: stored for stored in RunStore.read(run).turns()}
        for repair in read_lines(Repair, run / "repairs.jsonl"):
            stored = turns[repair.turn.key]
            assert stored.record.build is not None
            assert stored.candidate is not None
            assert repair.source == stored.candidate.source
            verdict = judge(suite.case(repair.turn.key.case, "h100"), stored.record.build, stored.record.evidence)
            assert verdict == repair.verdict
            assert verdict.correct
            assert repair.failure.source != repair.source
            kept += 1
    assert kept == 8
