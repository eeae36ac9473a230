"""Outputs that are right but for one part, which is zero: each must fail every family in which there is such a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ptxbench.cases import Case

    Index = tuple[int | slice, ...]

TILE = 16
"""Rows at the end that a wrong tail leaves out: a quarter of a block."""
EVERY = slice(None)


def parts(case: Case, family: str, name: str) -> dict[str, Index]:
    """The parts of one output, by what is missing where they are zero."""
    shape = case.output_shapes()[name]
    structure = case.structure("adversarial" if family == "structure" else "official")
    if structure is not None:
        longest = structure.kv_lengths.index(max(structure.kv_lengths))
        first, last = structure.qo_indptr[longest : longest + 2]
        return {
            "sequence": (slice(first, last),),
            "head": (EVERY, shape[1] - 1),
            "tail": (slice(max(first, last - TILE), last),),
        }
    if len(shape) == 2:
        return {"tail": (slice(-TILE, None),)}
    found: dict[str, Index] = {"head": (0, shape[1] - 1), "tail": (shape[0] - 1, EVERY, slice(-TILE, None))}
    return found | ({"sequence": (shape[0] - 1,)} if shape[0] > 1 else {})


def without(reference: torch.Tensor, part: Index) -> torch.Tensor:
    """The right answer with zeros in one part."""
    made = reference.clone()
    made[part] = 0
    return made
