"""A repair whose kernels are measured: the same pipeline as without a GPU, on a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxbench.adapt.model import Repair, read_lines, write_lines
from ptxbench.agent import RunStore
from ptxbench.cli import main
from tests.acceptance.conversations import answer
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.support.fixit_parts import wrong
from tests.support.llm_server import LlmServer


@pytest.mark.gpu
def test_a_repair_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failures, models, run = tmp_path / "failures.jsonl", tmp_path / "models.yaml", tmp_path / "repairs"
    write_lines([wrong()], failures)
    steps = [answer("oob_write"), answer("generic_gemm")]
    with LlmServer(steps) as server:
        entry = {"provider": "openai", "model": "t-1", "api_base": server.url}
        models.write_text(f"models:\n  teacher: {json.dumps(entry)}\n")
        arguments = ["fixit", "repair", failures, "--teacher=teacher", f"--models-file={models}", "--run", run]
        assert main([*map(str, arguments), "--profiler=local", "--require-safe"]) == 0
    (repair,) = read_lines(Repair, run / "repairs.jsonl")
    assert repair.source == load("generic_gemm")
    assert repair.turns == 2
    records = [stored.record for stored in RunStore.read(run).turns()]
    assert [record.evidence_origin for record in records] == ["measured", "measured"]
    assert [record.verdict.outcome.value for record in records] == ["memory_error", "correct"]
