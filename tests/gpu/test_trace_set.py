"""A collection of others on a device: captured inputs, scalars, a reference as baseline; and all of it by pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.cases import Case
from ptxbench.cases.trace_sets import load_collections
from ptxbench.models import Proposal
from ptxbench.models.solutions import one_source
from ptxbench.records import Candidate, Outcome, Safe, Target
from ptxbench.trace.trace_set import read_solutions
from tests.support.trace_sets import OURS, RMSNORM, ROOT, SMALL, add_reference_solutions, copy_small
from tests.unit.trace import public_models

if TYPE_CHECKING:
    from ptxbench.profiler import Profiler
    from ptxbench.toolchain import Toolchain

CAPTURED, DRAWN = f"{RMSNORM}.d9a08d1f", f"{RMSNORM}.f5b14411"


def right_kernel() -> str:
    (found,) = [each.solution for each in read_solutions(SMALL) if each.solution.spec.language == "cuda"]
    return one_source(found)


@pytest.fixture(scope="module")
def rmsnorm() -> dict[str, Case]:
    return {case.name: case for case in load_collections(ROOT, [SMALL], ["rmsnorm*"]).suite.cases("h100")}


def evaluated(source: str, case: Case, profiler: Profiler, toolchain: Toolchain) -> Evaluation:
    proposal = Proposal(origin="test", candidate=Candidate(source=source))
    return Evaluator(lambda: toolchain, compile_slots=2).evaluate(case, proposal, profiler)


@pytest.mark.parametrize("name", [CAPTURED, DRAWN])
def test_a_right_kernel_of_an_unknown_operator(
    name: str, rmsnorm: dict[str, Case], profiler: Profiler, toolchain: Toolchain
) -> None:
    found = evaluated(right_kernel(), rmsnorm[name], profiler, toolchain)
    verdict = found.verdict
    assert verdict.outcome is Outcome.CORRECT, verdict.message
    assert verdict.target is Target.NOT_EXECUTED, verdict.target_message
    assert verdict.safe is Safe.YES, verdict.safe_message
    assert verdict.latency_ms is not None
    assert verdict.speedup is not None, verdict.flags
    assert found.evidence is not None
    baseline = found.evidence.run.baseline
    assert baseline is not None
    assert (baseline.library, baseline.call, baseline.relative_rms) == ("torch", "definition.reference", {})


WRONG = {
    "without the weight": ("f.x * factor * w.x", "f.x * factor"),
    "with another eps": ("static_cast<float>(eps)", "1.0f"),
    "zeros": ("out[at] = vector;", "out[at] = make_uint4(0, 0, 0, 0);"),
    "a copy of the input": ("out[at] = vector;", "out[at] = x[at];"),
    "nothing": ("out[at] = vector;", ""),
    "the weight overwritten": (
        "out[at] = vector;",
        "out[at] = vector; const_cast<uint4*>(weight)[threadIdx.x] = make_uint4(1, 2, 3, 4);",
    ),
}


@pytest.mark.parametrize("name", [CAPTURED, DRAWN])
@pytest.mark.parametrize(("old", "new"), list(WRONG.values()), ids=list(WRONG))
def test_wrong_kernels_of_an_unknown_operator(
    name: str, old: str, new: str, rmsnorm: dict[str, Case], profiler: Profiler, toolchain: Toolchain
) -> None:
    source = right_kernel()
    assert old in source
    found = evaluated(source.replace(old, new), rmsnorm[name], profiler, toolchain)
    assert found.verdict.outcome is Outcome.NUMERICAL_ERROR, found.verdict.message


def command(*words: str) -> str:
    """What one of our programs says. Whether it passes or fails, it has to run."""
    path = os.pathsep.join(filter(None, (str(ROOT / "plugins"), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    words = (sys.executable, "-m", *words)
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_a_collection_through_pytest(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    add_reference_solutions(collection)
    report, run = tmp_path / "report.json", tmp_path / "run"
    # Whether small workloads are fast is not what this is about.
    selection = ("-m", "h100", f"--trace-set={collection}", "--model", "solutions", "--profiler", "local")
    said = command("pytest", *selection, f"--run={run}", f"--ptx-json={report}", "-p", "no:cacheprovider")
    assert "the baseline of rmsnorm_h2048" in " ".join(said.split()), said
    turns: dict[str, Any] = {turn["key"]["case"]: turn for turn in json.loads(report.read_text())["turns"]}
    assert set(turns) == {*OURS, CAPTURED, DRAWN}, said
    for name, turn in turns.items():
        verdict = turn["verdict"]
        assert verdict["outcome"] == "correct", (name, verdict["message"])
        assert verdict["target"] == ("executed" if name in OURS else "not_executed"), verdict["target_message"]
        assert turn["evidence_origin"] == "measured"
    assert turns[OURS[0]]["baseline"]["library"] == "cublas"
    assert turns[OURS[1]]["baseline"]["library"] == "cudnn"
    assert turns[CAPTURED]["baseline"]["call"] == "definition.reference"

    exported = tmp_path / "exported"
    command("ptxbench", "export", str(run), "--into", str(exported), "--trace-set", str(collection))
    command("ptxbench", "import", str(exported), "--run", str(tmp_path / "back"))
    judged = command("ptxbench", "judge", str(tmp_path / "back"), "--trace-set", str(collection))
    assert "5 turns judged again, 0 verdicts changed" in judged
    # Last: without the package of these models the test ends here, as skipped.
    public = public_models.load()
    traces = [line for path in (exported / "traces").rglob("*.jsonl") for line in path.read_text().splitlines()]
    statuses = [public.Trace.model_validate_json(line).evaluation.status.value for line in traces]
    assert statuses == ["PASSED"] * 5
