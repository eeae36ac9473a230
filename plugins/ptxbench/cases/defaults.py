"""What a case is judged by where nobody says: claims that hold for any definition, and no others."""

from __future__ import annotations

from typing import Any

from ptxbench.cases.case import Baseline, Case, Op, Tolerance
from ptxbench.trace.definition import Definition

REFERENCE_CALL = "definition.reference"
"""``Baseline.call`` of the definition's own reference, run as it is by eager PyTorch: no tuned library, and every
report says so. There is nothing else that is right for any operator."""
REFERENCE_BASELINE = Baseline(library="torch", call=REFERENCE_CALL)
DEFAULT_TOLERANCE = Tolerance(atol=0.01, rtol=0.01)
"""PROTOCOL 4.4, and what FlashInfer-Bench and SOL-ExecBench take by default. Of floating-point outputs."""
EXACT = Tolerance(atol=0.0, rtol=0.0)
"""Of integer and boolean outputs, whatever the case says: an index, a count or a mask that is nearly right is wrong."""
NO_FLOPS = "0"
"""How many operations an unknown operator needs is unknown, so none bounds its time and no share of them is told."""

_ATTENTION = ("attention", "mha", "gqa", "mqa", "mla", "dsa", "nsa")


def op_of(op_type: str) -> Op:
    """The coarse kind of a definition's ``op_type``."""
    words = op_type.lower().replace("-", "_").split("_")
    if "gemm" in words:
        return "gemm"
    return "attention" if any(word in _ATTENTION for word in words) else "other"


def tolerance_of(case: Case, output: str) -> Tolerance:
    """By what one output of a case is compared. One that it does not have, as evidence may name, has the case's."""
    tensor = case.definition.outputs.get(output)
    return case.tolerance if tensor is None or "float" in tensor.dtype.value else EXACT


def output_bytes(definition: Definition) -> str:
    """A formula for the bytes of all outputs: what no kernel can avoid, whatever the operator is.

    Not of the inputs: many an operator reads a few pages of a large cache, and a bound that counts all of it would call
    an honest kernel implausible.
    """
    sizes = ((str(tensor.dtype.bits // 8), *(tensor.shape or ())) for tensor in definition.outputs.values())
    return " + ".join("*".join(factors) for factors in sizes)


def default_fields(definition: Definition) -> dict[str, Any]:
    """Fields of a case, by name, that nobody chose for the definition."""
    return {
        "op": op_of(definition.op_type),
        "baseline": REFERENCE_BASELINE,
        "tolerance": DEFAULT_TOLERANCE,
        "input_recipe": "normal",
        "causal": False,
        "flops_formula": NO_FLOPS,
        "bytes_formula": output_bytes(definition),
        "shrunk_axes": {},
    }
