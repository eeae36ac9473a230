"""Every case of every suite with its var axes shrunk until a CPU computes it at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.cases import Case, load_suite
from ptxbench.profiler.families import families_of
from ptxbench.profiler.inputs import InputSource
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.state import CheckedDraw, checked_draw
from ptxbench.trace.definition import AxisConst

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).parents[2]
SMALLER = {"M": 16, "B": 1, "H": 2, "S": 70}
SMALLER_CONST = {"gemm_n7168_k5120": {"N": 320, "K": 192}}
"""Axes that a definition fixes, where those of a model's layer are too much for a CPU. Attention's are its head's."""
NAMES = tuple(case.name for case in load_suite(ROOT, "all").cases("h100"))
"""All 16."""
PAIRS = tuple((name, family) for name in NAMES for family in families_of(load_suite(ROOT, "all").case(name, "h100")))
"""Every case with each of its families."""


def small_case(name: str) -> Case:
    """One of them. GQA has the shrunk workload's axes, with more keys than queries."""
    case = load_suite(ROOT, "all").case(name, "h100").shrunk()
    axes = {axis: SMALLER.get(axis, size) for axis, size in case.workload.axes.items()}
    fixed = {axis: AxisConst(type="const", value=size) for axis, size in SMALLER_CONST.get(name, {}).items()}
    definition = case.definition.model_copy(update={"axes": {**case.definition.axes, **fixed}})
    workload = case.workload.model_copy(update={"axes": axes})
    return case.model_copy(update={"definition": definition, "workload": workload})


class Staged(NamedTuple):
    """Inputs of one family, and what the definition's reference makes of them."""

    case: Case
    inputs: dict[str, torch.Tensor]
    checked: CheckedDraw


def staged(name: str, family: str) -> Staged:
    """A new draw."""
    case = small_case(name)
    source = InputSource(case)
    draw = source.keep(family)
    inputs = source.make(draw, "cpu")
    run: Any = compile_reference(case)
    return Staged(case, inputs, checked_draw(case, run, draw, inputs, source.derived))
