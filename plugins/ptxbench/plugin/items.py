"""Test items: one per check and turn. They depend on options and ``cases/`` alone, never on a GPU or earlier runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from ptxbench.errors import InputError
from ptxbench.plugin.options import Options

if TYPE_CHECKING:
    from ptxbench.agent import TrajectoryPlan
    from ptxbench.cases import Case
    from ptxbench.models import Model
    from ptxbench.records import TurnKey, TurnRecord

FIXTURE = "turn"
ITEM = "ptxbench.item"
"""User property of our items, with which a worker tells the controller which they are; taken off before anybody reports
it."""

RECORD: pytest.StashKey[TurnRecord] = pytest.StashKey()
"""Where an item keeps the record that it was given."""


@dataclass(frozen=True)
class PlannedTurn:
    """The parameter of the items of one turn."""

    plan: TrajectoryPlan
    turn: int

    @cached_property
    def key(self) -> TurnKey:
        """Which turn."""
        return self.plan.key(self.turn)


def plan_trajectories(options: Options, cases: Sequence[Case], models: Sequence[Model]) -> tuple[TrajectoryPlan, ...]:
    """Every trajectory that the options ask for: model by model, case by case, variant by variant.

    A model that has fewer turns by nature gets only those, unless the turns were asked for. Raises InputError for
    variants that no case has.
    """
    from ptxbench.agent import TrajectoryPlan
    from ptxbench.models.solutions import trajectories_of

    variants = _choose_variants(options.variants, cases)
    return tuple(
        TrajectoryPlan(model, case, variant, trajectory, options.turns_given(model.turns))
        for model in models
        for case in cases
        for variant in variants[case.name, case.arch.name]
        for trajectory in range(trajectories_of(model, case, options.trajectories))
    )


def expect_arch(mark_expression: str, archs: Sequence[str]) -> None:
    """Raises InputError where ``-m`` names no architecture. Which of them it selects is pytest's business."""
    if not set(archs) & set(re.findall(r"\w+", mark_expression)):
        found = f"-m {mark_expression!r}" if mark_expression else "no -m"
        raise InputError(
            f"--trace-set: expected -m to name an architecture ({', '.join(archs)}), since the cases of a collection "
            f"are bound to none; found {found}; add for example -m {archs[-1] if archs else 'ARCH'}"
        )


def _choose_variants(text: str, cases: Sequence[Case]) -> dict[tuple[str, str], tuple[int, ...]]:
    """Case and architecture -> chosen variant indices."""
    known = tuple(dict.fromkeys(variant for case in cases for variant in case.variants))
    most = max((len(case.variants) for case in cases), default=0)
    if text.isascii() and text.isdigit():
        if not 1 <= int(text) <= most:
            raise InputError(f"--variants {text}: expected 1 to {most}, as many as a selected case has, found {text}")
        return {(case.name, case.arch.name): tuple(range(min(int(text), len(case.variants)))) for case in cases}
    names = known if text == "all" else tuple(part.strip() for part in text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f"--variants {text}: expected a number, all, or names of {', '.join(known)}; found {unknown[0]!r}"
        )
    return {
        (case.name, case.arch.name): tuple(index for index, name in enumerate(case.variants) if name in names)
        for case in cases
    }


def parametrize(metafunc: pytest.Metafunc, plans: Iterable[TrajectoryPlan]) -> None:
    """One item per planned turn, with the marks of its case."""
    metafunc.parametrize(FIXTURE, list(_parameters(plans)), indirect=True)


def _parameters(plans: Iterable[TrajectoryPlan]) -> Iterator[object]:
    for plan in plans:
        case = plan.case
        marks = [getattr(pytest.mark, name) for name in (case.arch.name, case.op, mark_name(case.suite))]
        for turn in range(plan.turns):
            yield pytest.param(PlannedTurn(plan, turn), id=f"{plan.id}-turn{turn}", marks=marks)


def planned_turn(item: pytest.Item) -> PlannedTurn | None:
    """The turn that an item is about, if it is about one."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    parameter = parameters.get(FIXTURE)
    return parameter if isinstance(parameter, PlannedTurn) else None


def name_ours(items: Iterable[pytest.Item]) -> None:
    """Mark the items that are about turns: ids of others may look like theirs."""
    for item in items:
        if planned_turn(item) is not None:
            item.user_properties.append((ITEM, ""))


def selected_plans(items: Iterable[pytest.Item]) -> tuple[TrajectoryPlan, ...]:
    """The trajectories that these items need, in order, each only as long as the last turn that is needed."""
    needed: dict[str, PlannedTurn] = {}
    for item in items:
        planned = planned_turn(item)
        if planned is not None:
            trajectory = planned.key.trajectory_id
            known = needed.get(trajectory)
            if known is None or known.turn < planned.turn:
                needed[trajectory] = planned
    return tuple(planned.plan._replace(turns=planned.turn + 1) for planned in needed.values())


def mark_name(suite: str) -> str:
    """A suite's mark: marks are identifiers, suite names may have hyphens."""
    return suite.replace("-", "_")


def marks(root: Path, trace_sets: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """Name and meaning of every mark that items can carry, read from the names of the data files."""
    from ptxbench.cases import Op, available_archs, available_suites

    for arch in available_archs(root):
        yield arch, f"turns on the architecture {arch}"
    for op in get_args(Op):
        yield op, f"turns of {op} cases"
    for suite in available_suites(root):
        yield mark_name(suite), f"turns of the suite {suite}"
    if trace_sets:
        from ptxbench.cases.trace_sets import suite_name

        yield mark_name(suite_name(trace_sets)), "turns of the collections that --trace-set names"
