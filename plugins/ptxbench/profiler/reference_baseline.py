"""The baseline of an operator that nobody here knows: its definition's own reference, run by eager PyTorch.

It is no tuned library. What it is for is a denominator that exists for every definition and can be named; reports say
what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptxbench.cases.collection_case import read_case
from ptxbench.cases.defaults import REFERENCE_CALL
from ptxbench.profiler.bound_call import Bound
from ptxbench.trace.workload import ScalarInput

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case


def is_reference(case: Case) -> bool:
    """Whether the case's baseline is its own reference."""
    return case.baseline.call == REFERENCE_CALL


def reference_job(case: Case) -> dict[str, str]:
    """What a job tells the trusted worker beside the tensors; nothing where the baseline is a library's."""
    return {"case": case.model_dump_json()} if is_reference(case) else {}


def bind_reference(job: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Bound:
    """Bind the reference of the job's case to its tensors.

    Raises InfrastructureError("reference_failed") where it does not load.
    """
    from ptxbench.profiler.reference import compile_reference

    case = read_case(job["case"])
    run = compile_reference(case)
    given = case.workload.inputs
    arguments = [
        source.value if isinstance(source := given[name], ScalarInput) else tensors[name]
        for name in case.input_shapes()
    ]
    results: list[Any] = []

    def call() -> None:
        returned = run(*arguments)
        results[:] = returned if isinstance(returned, tuple | list) else (returned,)

    def publish() -> None:
        for name, value in zip(case.output_shapes(), results, strict=True):
            tensors[name].copy_(value)

    return Bound(call, publish)
