"""Case: one definition and workload on one architecture, with everything that judging it needs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from ptxbench.cases.arch import Arch
from ptxbench.cases.formula import evaluate
from ptxbench.cases.structure import Layout, Structure, formula_values, structure_of
from ptxbench.records import Record
from ptxbench.trace.base import Text
from ptxbench.trace.definition import Definition
from ptxbench.trace.workload import ScalarInput, Workload

Positive = Annotated[int, Field(gt=0)]
Bound = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A tolerance above 1 lets an output pass that has nothing to do with the reference."""

Op = Literal["gemm", "attention", "other"]
"""Coarse kind, also a pytest mark."""

InputRecipe = Literal["normal", "attention_backward", "gqa_ragged_prefill", "gqa_paged_prefill", "gqa_paged_decode"]
"""How random inputs are made. ``normal``: all standard normal. ``attention_backward``: Q, K, V and dO standard normal,
O and L from a real forward pass over Q, K, V (PROTOCOL 2). ``gqa_*``: the floating-point inputs standard normal, the
sequences' offsets those of ``Case.structure``, page numbers drawn at random."""


class Baseline(Record):
    """The library call that a speedup divides by (PROTOCOL 3). The version is measured, not declared."""

    library: Text
    call: Text


class Tolerance(Record):
    """Bounds of the element rule ``|out - ref| <= atol + rtol * |ref|`` (PROTOCOL 4.4)."""

    atol: Bound
    rtol: Bound


class Case(Record):
    """One row of a suite on one architecture."""

    name: Text
    """The definition's name; unique in a suite."""
    suite: Text
    op: Op
    definition: Definition
    workload: Workload
    arch: Arch
    baseline: Baseline
    tolerance: Tolerance
    input_recipe: InputRecipe
    causal: bool
    flops: int
    """Useful floating-point operations of one call; a multiply-add is two."""
    bytes: int
    """Compulsory traffic of one call: every input read once, every output written once."""
    flops_formula: Text
    bytes_formula: Text
    shrunk_axes: dict[Text, Positive]
    """Var axes of the small workload for sanitizers."""
    variants: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Prompt variants for this architecture; the first is ``none``."""
    trials: Positive = 3
    warmup: Annotated[int, Field(ge=0)] = 10
    iterations: Positive = 50

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of all axes, const and var, in definition order."""
        return self.definition.axis_values(self.workload.axes)

    def input_shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Input name -> shape, in definition order; None for scalars."""
        return self.definition.input_shapes(self.workload.axes)

    def scalars(self) -> dict[str, bool | int | float]:
        """Inputs that are passed by value -> their values, in definition order."""
        sources = {name: self.workload.inputs[name] for name in self.definition.inputs}
        return {name: source.value for name, source in sources.items() if isinstance(source, ScalarInput)}

    def structure(self, layout: Layout = "official") -> Structure | None:
        """The sequences of a ragged or paged workload; None for the others."""
        return structure_of(self.input_recipe, self.axes, self.workload.uuid, layout)

    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Output name -> shape, in definition order. Outputs of a case are tensors: the kernel writes into them."""
        shapes = self.definition.output_shapes(self.workload.axes)
        return {name: shape for name, shape in shapes.items() if shape is not None}

    def dtypes(self) -> dict[str, str]:
        """Input and output names -> element type (torch's name), in the order of the kernel's arguments."""
        tensors = {**self.definition.inputs, **self.definition.outputs}
        return {name: tensor.dtype.value for name, tensor in tensors.items()}

    def shrunk(self) -> Self:
        """The same case on the small workload: ``shrunk_axes`` replaced, FLOPs and bytes recomputed.

        It keeps every const axis, so a kernel that is right for the case is right here. Its workload has its own
        uuid, so that nothing cached for the full workload answers for it.
        """
        axes = {**self.workload.axes, **self.shrunk_axes}
        if axes == self.workload.axes:
            return self
        workload = self.workload.model_copy(update={"axes": axes, "uuid": f"{self.workload.uuid}-shrunk"})
        values = formula_values(self.input_recipe, self.definition.axis_values(axes), workload.uuid)
        return self.model_copy(
            update={
                "workload": workload,
                "flops": evaluate(self.flops_formula, values),
                "bytes": evaluate(self.bytes_formula, values),
            }
        )
