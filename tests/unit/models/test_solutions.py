"""The solutions of a collection as a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.cases import Case
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InputError
from ptxbench.models import End, Proposal, open_models
from ptxbench.models.reference import ReferenceModel
from ptxbench.models.solutions import SolutionsModel, one_source, trajectories_of
from ptxbench.records import Candidate
from ptxbench.trace import Solution
from ptxbench.trace.trace_set import read_solutions
from tests.support.trace_sets import RMSNORM, ROOT, SMALL
from tests.unit.trace import samples


@pytest.fixture(scope="module")
def case() -> Case:
    return load_collections(ROOT, [SMALL], [f"{RMSNORM}.d9*"]).suite.cases("h100")[0]


def solution(change: Callable[[dict[str, Any]], object]) -> Solution:
    data = samples.solution()
    change(data)
    return Solution.model_validate_json(json.dumps(data))


def test_every_cuda_solution_is_a_trajectory_of_one_turn(case: Case) -> None:
    found = [file.solution for file in read_solutions(SMALL)]
    model = SolutionsModel(lambda: {RMSNORM: found})
    assert (model.name, model.turns, model.min_speedup(case)) == ("solutions", 1, None)
    assert model.trajectories(case) == 1
    proposal = model.propose(case, 0, 0, 0, ())
    assert isinstance(proposal, Proposal)
    assert proposal.origin == "solution rmsnorm_h2048_row_per_block"
    assert proposal.candidate is not None
    assert proposal.candidate.sha256 == model.known_source(case, 0, 0, 0)
    # Its header is in the place where it was included.
    assert "constexpr int kHidden = 2048;" in proposal.candidate.source
    assert '#include "src/sizes.cuh"' not in proposal.candidate.source
    assert isinstance(model.propose(case, 0, 0, 1, ()), End)


def test_a_definition_without_a_usable_solution_says_why(case: Case) -> None:
    python = [file.solution for file in read_solutions(SMALL) if file.solution.spec.language == "python"]
    model = SolutionsModel(lambda: {RMSNORM: python})
    assert model.trajectories(case) == 1
    end = model.propose(case, 0, 0, 0, ())
    assert isinstance(end, End)
    assert "no CUDA solution of rmsnorm_h2048" in end.message
    assert "rmsnorm_h2048_torch: it is written in python" in end.message
    assert model.known_source(case, 0, 0, 0) is None
    assert SolutionsModel(dict).trajectories(case) == 1


def test_several_solutions(case: Case) -> None:
    def named(name: str) -> Solution:
        source = {"path": "src/kernel.cu", "content": f"// {name}\n"}
        return solution(lambda data: data.update(name=name, sources=[source]))

    model = SolutionsModel(lambda: {RMSNORM: [named("a"), named("b"), named("c")]})
    assert trajectories_of(model, case, 7) == 3
    assert trajectories_of(ReferenceModel(ROOT), case, 7) == 7
    origins = []
    for trajectory in range(3):
        proposal = model.propose(case, 0, trajectory, 0, ())
        assert isinstance(proposal, Proposal)
        assert proposal.candidate == Candidate(source=f"// {'abc'[trajectory]}\n")
        origins.append(proposal.origin)
    assert origins == ["solution a", "solution b", "solution c"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data["spec"].update(language="triton"), "it is written in triton"),
        (lambda data: data["spec"].update(binding="torch"), "it is a torch extension"),
        (lambda data: data["spec"].update(destination_passing_style=False), "it returns its outputs"),
        (lambda data: data["spec"].update(entry_point="src/kernel.cu::rmsnorm"), "it exports 'rmsnorm', not 'run'"),
        (
            lambda data: (
                data["sources"].append({"path": "main.cpp", "content": "//"}),
                data["spec"].update(entry_point="main.cpp::run"),
            ),
            "its entry is in main.cpp, which is no .cu file",
        ),
        (lambda data: data["sources"].append({"path": "b.cu", "content": "//"}), "b.cu is a unit of its own"),
    ],
)
def test_what_cannot_be_built(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        one_source(solution(change))


def test_its_own_files_are_put_in() -> None:
    sources = [
        {"path": "./src/kernel.cu", "content": '#include "../inc/a.cuh"\n#include <c.h>\nend\n'},
        {"path": "inc//a.cuh", "content": "A"},
    ]
    changes = {"sources": sources, "spec": samples.solution()["spec"] | {"entry_point": "src/./kernel.cu::run"}}
    assert one_source(solution(lambda data: data.update(changes))) == "A\n\n#include <c.h>\nend\n"


def test_it_is_opened_by_name() -> None:
    def no_run(text: str) -> Any:
        raise AssertionError(text)

    (model,) = open_models(["solutions"], root=Path("."), open_run=no_run, solutions=dict)
    assert isinstance(model, SolutionsModel)
    with pytest.raises(InputError, match="name one with --trace-set PATH"):
        open_models(["solutions"], root=Path("."), open_run=no_run)
