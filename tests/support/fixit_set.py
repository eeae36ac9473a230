"""The runs that every recipe is rebuilt from: made-up ones of a weak model, and what made-up teachers wrote of them.

Runs are those of ``synthetic_run``: real records and feedback, judged by the real rules; prompts with little knowledge
and short kernels, to be small. Repairs and rationales are drawn by the hash of the failure, so that each recipe finds
the same ones. ``generated/examples`` is the real part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.collect import Sources, collect
from ptxbench.adapt.model import RATIONALES, REPAIRS, Correct, Failure, Provenance, Rationale, Repair, write_lines
from ptxbench.adapt.recipe import find_recipe
from ptxbench.cases import load_suite
from ptxbench.verdict import judge
from tests.support.synthetic_run import ROOT, Scene, write_scenes
from tests.unit.factories import GEMM, make_build, make_evidence, suite_case

STUDENT, OTHER = "deepseek", "claude"
REPAIRER, REASONER = "repairer", "reasoner"
EXAMPLE = ROOT / "generated" / "examples" / "claude-exchange"
TRAJECTORIES = {
    "mha_with_lse_d64": 1,
    "mha_with_lse_d64_causal": 1,
    "mha_with_lse_d128": 4,
    "mha_with_lse_d128_causal": 1,
    "mha_bwd_d64": 1,
    "mha_bwd_d64_causal": 1,
    "mha_bwd_d128": 1,
    "mha_bwd_d128_causal": 1,
    GEMM: 1,
}
"""Of each prompt variant: unbalanced, as real runs are."""
LINES = 80
"""Of each kernel. Nobody compiles them."""


class FixitSet(NamedTuple):
    """Where it lies."""

    runs: tuple[str, ...]
    pool: Path
    """Folder with repairs and rationales."""


def write_set(folder: Path) -> FixitSet:
    """Write two runs and the pool. The same bytes each time."""
    write_scenes(folder / "base", list(_scenes()), words=12)
    # Begun later, with the same dice: every kernel again. Another model's turns lie beside.
    case = load_suite(ROOT, "primary").case("mha_with_lse_d128", "h100")
    again = [Scene(case, model, 0, 0, "params", LINES) for model in (STUDENT, OTHER)]
    write_scenes(folder / "again", again, words=12, begun="2026-11-30T08:00:00+00:00")
    runs = (str(folder / "base"), str(folder / "again"))
    return FixitSet(runs, write_pool(folder / "pool", runs, STUDENT))


def write_pool(folder: Path, runs: Iterable[str], model: str) -> Path:
    """Repairs and rationales of everything that some recipe takes from the runs."""
    sources = Sources(ROOT, tuple(runs))
    wide = find_recipe("8ops-extended").recipe
    failures = [one for one in collect(sources, wide, model).records if isinstance(one, Failure)]
    corrects = collect(sources, find_recipe("8ops-extended-kernelgen").recipe, model).records
    repairs = [_repair(one) for one in failures if _dice(one.id, "repair") < 80 or len(failures) == 1]
    kernels: list[Repair | Correct] = [*repairs, *(one for one in corrects if isinstance(one, Correct))]
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(repairs, folder / REPAIRS)
    write_lines(_rationales(kernels, model), folder / RATIONALES)
    return folder


def _scenes() -> Iterator[Scene]:
    for suite in ("primary", "generalization"):
        for case in load_suite(ROOT, suite).cases("h100"):
            for trajectory in range(TRAJECTORIES.get(case.name, 0)):
                yield from (
                    Scene(case, STUDENT, variant, trajectory, "params", LINES) for variant in range(len(case.variants))
                )


def _dice(id: str, what: str) -> int:  # noqa: A002
    """From 0 to 99."""
    return int(hashlib.sha256(f"{what}{id}".encode()).hexdigest()[:8], 16) % 100


def _repair(failure: Failure) -> Repair:
    turn = Provenance(
        run="repairs",
        run_created_at=failure.origin.run_created_at,
        suites=failure.origin.suites,
        key=failure.origin.key.model_copy(update={"model": REPAIRER}),
    )
    return Repair(
        failure=failure,
        source=f"{failure.source}// mended\n",
        verdict=judge(suite_case(), make_build(), make_evidence(suite_case())),
        turns=1 + _dice(failure.id, "turns") % 5,
        teacher=REPAIRER,
        turn=turn,
    )


def _rationales(kernels: Sequence[Repair | Correct], model: str) -> Iterator[Rationale]:
    """By another model of most, by the student itself of some. One of each kind is too long to be used."""
    longest = {max((one.id for one in kernels if _is_early(one, kind)), default="") for kind in (Repair, Correct)}
    for one in kernels:
        words = 72_000 if one.id in longest else 30 + _dice(one.id, "words")
        text = "I look at the barrier first. " + "So the phase must flip here. " * (words // 6)
        if _dice(one.id, "reason") < 90 or one.id in longest:
            yield Rationale(repair=one, text=text, teacher=REASONER, attempts=1)
        if _dice(one.id, "own") < 50:
            yield Rationale(repair=one, text=f"{text} My own words.", teacher=model, attempts=2)


def _is_early(one: Repair | Correct, kind: type[Repair | Correct]) -> bool:
    """Of an operator and turn that every recipe takes."""
    key = (one.failure if isinstance(one, Repair) else one).origin.key
    return isinstance(one, kind) and key.case == "mha_with_lse_d128" and key.turn < 5 and key.model == STUDENT
