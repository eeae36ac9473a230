"""What computes nothing fails every case under every family, by the very comparison that judges candidates."""

from __future__ import annotations

import math
from functools import cache

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.profiler.blocks import worst_error
from ptxbench.profiler.comparison import describe, measure
from ptxbench.profiler.state import bounds_of
from ptxbench.records import CORRECTNESS_CALL, OFFICIAL_FAMILY, CheckedCall, OutputComparison
from ptxbench.verdict.precision import FAMILY_CEILING, family_passes, qualified
from tests.support.null_outputs import NULLS
from tests.support.partial_nulls import parts, without
from tests.support.small_cases import PAIRS, Staged
from tests.support.small_cases import staged as stage

staged = cache(stage)
LIBRARY = {torch.bfloat16: 2.5e-3, torch.float32: 1e-7}
LIBRARY_WORST = {torch.bfloat16: 4.5e-3, torch.float32: 4e-7}
"""By the output's type; as emulated kernels have it."""


@cache
def another(name: str, family: str) -> Staged:
    return stage(name, family)


def compared(subject: Staged, outputs: dict[str, torch.Tensor]) -> CheckedCall:
    """As ``WorkloadState.compare`` does it."""
    found: list[OutputComparison] = []
    for name, reference in subject.checked.references.items():
        bounds = bounds_of(subject.case, subject.checked, name, 1.0)
        numbers = measure(outputs[name], reference, **bounds).tolist()
        blocks = subject.checked.blocks.get(name)
        worst = float(worst_error(outputs[name], reference, blocks)) if blocks is not None else None
        found.append(describe(name, outputs[name], reference, numbers, worst_block=worst, **bounds))
    return CheckedCall(iteration=CORRECTNESS_CALL, outputs=tuple(found), inputs_intact=True, guards_intact=True)


def passes(subject: Staged, family: str, outputs: dict[str, torch.Tensor], library: dict[str, float]) -> bool:
    """The official rule on the official family, the precision gate on the others."""
    call = compared(subject, outputs)
    if family == OFFICIAL_FAMILY:
        return not any(map(call.disagrees, call.outputs))
    return family_passes(call, library)


def worst_library(subject: Staged) -> dict[str, float]:
    """A library as bad as a family may have: candidates then have the most room."""
    return dict.fromkeys(subject.checked.references, FAMILY_CEILING)


def rounded(subject: Staged) -> dict[str, torch.Tensor]:
    """A right answer with the errors of a BF16 kernel: 2 to 3 in a thousand of the outputs' size."""
    torch.manual_seed(0)
    return {
        name: (tensor * (1 + 2e-3 * torch.randn(tensor.shape).clamp(-2, 2))).to(tensor.dtype)
        if tensor.dtype == torch.bfloat16
        else tensor * (1 + 1e-6)
        for name, tensor in subject.checked.references.items()
    }


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_a_right_answer_passes(name, family):
    subject = staged(name, family)
    library = dict.fromkeys(subject.checked.references, 2e-3)
    assert qualified(library)
    assert passes(subject, family, subject.checked.references, library)
    assert passes(subject, family, rounded(subject), library)


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_nothing_computed_fails(name, family, null):
    subject, stale = staged(name, family), another(name, family)
    made = {
        output: NULLS[null](reference, subject.inputs, stale.checked.references[output])
        for output, reference in subject.checked.references.items()
    }
    library = dict.fromkeys(subject.checked.references, 2.5e-3)
    assert not passes(subject, family, made, library)


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_nothing_computed_in_one_output_fails(name, family, null):
    subject, stale = staged(name, family), another(name, family)
    references = subject.checked.references
    library = {output: 2.5e-3 if tensor.dtype == torch.bfloat16 else 1e-7 for output, tensor in references.items()}
    for output, reference in references.items():
        made = NULLS[null](reference, subject.inputs, stale.checked.references[output])
        assert not passes(subject, family, {**references, output: made}, library), output


@pytest.mark.parametrize(("name", "family"), [pair for pair in PAIRS if pair[1] != OFFICIAL_FAMILY])
def test_even_the_worst_library_that_qualifies_lets_nothing_empty_pass(name, family):
    subject, stale = staged(name, family), another(name, family)
    for null, make in NULLS.items():
        made = {
            output: make(reference, subject.inputs, stale.checked.references[output])
            for output, reference in subject.checked.references.items()
        }
        assert not passes(subject, family, made, worst_library(subject)), null


@pytest.mark.parametrize(("name", "family"), [pair for pair in PAIRS if pair[1] != OFFICIAL_FAMILY])
def test_an_output_that_lacks_a_part_fails(name, family):
    """Of each output alone: what a wrong merge, a wrong tail or a forgotten head leaves."""
    subject = staged(name, family)
    references = subject.checked.references
    library, worst = (
        {output: errors[tensor.dtype] for output, tensor in references.items()} for errors in (LIBRARY, LIBRARY_WORST)
    )
    assert family_passes(compared(subject, rounded(subject)), library, worst)
    for output, reference in references.items():
        found = parts(subject.case, family, output)
        assert found
        for part, index in found.items():
            call = compared(subject, {**references, output: without(reference, index)})
            assert not family_passes(call, library, worst), f"{part} of {output}"


def test_a_family_with_a_library_beyond_the_ceiling_says_nothing():
    assert not qualified({"C": 2 * FAMILY_CEILING})
    assert not qualified({"C": math.inf})
    assert not qualified({})
    assert not qualified(None)
    assert qualified({"C": FAMILY_CEILING})
