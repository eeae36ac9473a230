"""Failures and repairs of fixture kernels, whose evidence is stored."""

from __future__ import annotations

from typing import Any

from ptxbench.adapt.model import Failure, Provenance, Rationale, Repair
from ptxbench.agent.prompt import first_messages, identity
from ptxbench.packs import load_pack
from ptxbench.records import Outcome, TurnKey
from ptxbench.verdict import judge
from tests.fixtures.kernels import load
from tests.unit.factories import GEMM, ROOT, make_build, make_evidence, suite_case

FEEDBACK = "Your kernel runs, and its result is wrong.\n\nNext:\n- 6 turns are left.\n"
BEGUN = "2026-11-01T00:00:00+00:00"


def make_failure(source: str, turn: int = 0, **changes: Any) -> Failure:
    """A failed kernel of a run named ``base``."""
    pack = load_pack(ROOT, "h100", "params")
    key = TurnKey(model="student", case=GEMM, arch="h100", variant=0, trajectory=0, turn=turn)
    values: dict[str, Any] = {
        "origin": Provenance(run="base", run_created_at=BEGUN, suites=("primary",), key=key),
        "definition": GEMM,
        "variant_name": "none",
        "outcome": Outcome.NUMERICAL_ERROR,
        "prompt": first_messages(suite_case(), "none", pack),
        "prompt_identity": identity(pack),
        "source": source,
        "feedback": FEEDBACK,
    }
    return Failure(**{**values, **changes})


def make_repair(failure: Failure, source: str) -> Repair:
    """A repair that was judged correct."""
    verdict = judge(suite_case(), make_build(), make_evidence(suite_case()))
    turn = Provenance(
        run="repairs", run_created_at=BEGUN, suites=("primary",), key=failure.origin.key.model_copy(update={"turn": 1})
    )
    return Repair(failure=failure, source=source, verdict=verdict, turns=2, teacher="teacher", turn=turn)


def make_rationale(failure: Failure, source: str, text: str) -> Rationale:
    """A rationale of such a repair."""
    return Rationale(repair=make_repair(failure, source), text=text, teacher="reasoner", attempts=1)


def wrong(name: str = "wrong_result", turn: int = 0, **changes: Any) -> Failure:
    """The failure of a fixture kernel."""
    return make_failure(load(name), turn, **changes)
