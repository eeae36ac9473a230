"""How much device memory a case takes while it is evaluated: arithmetic, so that it is known without a device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.profiler.arena import ELEMENT_BYTES, layout
from ptxbench.profiler.families import families_of
from ptxbench.profiler.flashinfer_calls import WORKSPACE_BYTES
from ptxbench.profiler.inputs import RECIPES, specs_of
from ptxbench.profiler.state import TIMED_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptxbench.cases.case import Case
    from ptxbench.profiler.arena import TensorSpec

PROCESSES_BYTES = 4 << 30
"""Contexts of the oracle, the trusted worker, a sandbox and its successors (some 0.5 GiB each), their libraries'
workspaces, and what a flush of L2 takes."""
STATE_SHARE = 0.6
"""Share of the device's memory that workload states may hold; the rest is the candidates' and the libraries'."""
FLOAT64 = 8


class Footprint(NamedTuple):
    """Bytes of device memory, by what they are for."""

    arena: int
    """Staging: inputs and outputs once, with guard bands."""
    checked: int
    """Reference outputs, and inputs computed from others, of every checked draw."""
    building: int
    """At most while a state is built or qualified: one more copy of the inputs, the oracle's outputs in float64 with
    what it works on, and the library's own results."""

    @property
    def total(self) -> int:
        """Everything at once, with the processes."""
        return self.arena + self.checked + self.building + PROCESSES_BYTES


def footprint(case: Case) -> Footprint:
    """What one case takes, alone on its device."""
    specs = specs_of(case)
    outputs = [spec for spec in specs if spec.output]
    derived = [spec for spec in specs if spec.name in RECIPES[case.input_recipe].derived]
    draws = case.trials * (1 + TIMED_CHECKS) + len(families_of(case)) - 1
    exact = sum(math.prod(spec.shape) * FLOAT64 for spec in outputs)
    inputs = _nbytes(spec for spec in specs if not spec.output)
    return Footprint(
        arena=layout(specs)[1],
        checked=draws * (_nbytes(outputs) + _nbytes(derived)),
        # Of a product, the oracle's float64 copy of one operand is the largest thing it works on.
        building=inputs + exact + _largest_operand(specs) + 2 * _nbytes(outputs) + WORKSPACE_BYTES,
    )


def _nbytes(specs: Iterable[TensorSpec]) -> int:
    return sum(math.prod(spec.shape) * ELEMENT_BYTES[spec.dtype] for spec in specs)


def _largest_operand(specs: tuple[TensorSpec, ...]) -> int:
    return max((math.prod(spec.shape) for spec in specs if not spec.output), default=0) * FLOAT64
