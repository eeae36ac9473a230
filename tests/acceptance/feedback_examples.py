"""The examples of docs/feedback.md: each outcome over the evidence that was measured on an H200."""

from __future__ import annotations

from collections.abc import Callable

from ptxbench.agent.evaluation import Evaluator
from ptxbench.agent.feedback import feedback
from ptxbench.cases import load_suite
from ptxbench.models import PastTurn, Proposal
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Candidate, Evidence, OutputComparison, WaitingPlace
from ptxbench.records.mismatch import MismatchPattern
from ptxbench.toolchain import Toolchain
from ptxbench.verdict import judge, judge_extraction_error
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.unit.factories import make_record

GEMM, BACKWARD = "gemm_n7168_k5120", "mha_bwd_d128_causal"
TURNS_LEFT = 5

Change = Callable[[Evidence], Evidence]


class Examples:
    """Turns of fixtures and of a reference solution, and what a model is told of them."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._evaluator = Evaluator(lambda: toolchain, compile_slots=1)
        self._suite = load_suite(ROOT, "primary")

    def text(self, name: str) -> str:
        """The feedback of one example."""
        if name == "extraction_error":
            verdict = judge_extraction_error("the answer's only code block is not closed: it ended at the output limit")
            return self._told(GEMM, PastTurn(make_record(build=None, evidence=None, verdict=verdict), None))
        if name == "correct":
            source = (ROOT / f"generated/reference/h100/{BACKWARD}/kernel.cu").read_text()
            return self._told(BACKWARD, self._turn(BACKWARD, source, "generated/reference"))
        fixture, change = EXAMPLES[name]
        return self._told(GEMM, self._turn(GEMM, load(fixture), "tests/evidence", change))

    def _told(self, case: str, past: PastTurn) -> str:
        return feedback(self._suite.case(case, "h100"), past, turns_left=TURNS_LEFT, toolchain=self._toolchain)

    def _turn(self, name: str, source: str, evidence_root: str, change: Change | None = None) -> PastTurn:
        case = self._suite.case(name, "h100")
        proposal = Proposal(candidate=Candidate(source=source), origin="test")
        found = self._evaluator.evaluate(case, proposal, ReplayProfiler([ROOT / evidence_root]))
        assert found.build is not None
        evidence = found.evidence
        if change is not None and evidence is not None:
            evidence = change(evidence)
        verdict = judge(case, found.build, evidence)
        return PastTurn(make_record(case=case, build=found.build, evidence=evidence, verdict=verdict), source)


def compared(change: Callable[[OutputComparison], OutputComparison]) -> Change:
    """Evidence whose compared outputs are changed."""

    def changed(evidence: Evidence) -> Evidence:
        trials = tuple(
            trial.model_copy(
                update={
                    "checks": tuple(
                        call.model_copy(update={"outputs": tuple(map(change, call.outputs))}) for call in trial.checks
                    )
                }
            )
            for trial in evidence.run.trials
        )
        return evidence.model_copy(update={"run": evidence.run.model_copy(update={"trials": trials})})

    return changed


@compared
def _transposed(output: OutputComparison) -> OutputComparison:
    return output.model_copy(update={"shape": output.shape[::-1]})


@compared
def _with_pattern(output: OutputComparison) -> OutputComparison:
    stored = ROOT / "tests/data/feedback/partial_write_where.json"
    return output.model_copy(update={"where": MismatchPattern.model_validate_json(stored.read_bytes())})


def _waiting(evidence: Evidence) -> Evidence:
    place = WaitingPlace(
        kernel="_Z13wait_for_everv",
        offset=16,
        threads=1,
        blocks=1,
        block=(0, 0, 0),
        thread=(0, 0, 0),
        instruction="NANOSLEEP 0x3e8",
    )
    return evidence.model_copy(update={"run": evidence.run.model_copy(update={"waiting": (place,)})})


EXAMPLES: dict[str, tuple[str, Change | None]] = {
    "extraction_error": ("", None),
    "screened": ("cublas_include", None),
    "compile_error": ("compile_error", None),
    "memory_error": ("oob_write", None),
    "runtime_error": ("illegal_address", None),
    "timeout": ("endless", None),
    "timeout, with the place": ("endless", _waiting),
    "wrong_shape_or_dtype": ("wrong_result", _transposed),
    "numerical_error": ("wrong_result", None),
    "numerical_error, with a pattern": ("partial_write", _with_pattern),
    "numerical_error, in a timed iteration": ("memoize_pointer", None),
    "correct": ("", None),
}
"""Name of the example -> fixture, and how its evidence is changed where none was measured like that."""
