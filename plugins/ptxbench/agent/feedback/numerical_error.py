"""A result that is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ptxbench.agent.feedback.kernels import static_kernels
from ptxbench.agent.feedback.limits import remarks
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.safety_advice import safety_advice
from ptxbench.agent.feedback.sanitizer_findings import sanitizer_facts
from ptxbench.agent.feedback.where import axis_facts, kind_facts
from ptxbench.agent.feedback.wording import percent
from ptxbench.records import CORRECTNESS_CALL, CheckedCall, OutputComparison
from ptxbench.verdict.rules import Rule

_INDICES = 4
_MOST = 0.5
"""Share of wrong elements from which an error is taken to be in every sum."""


def describe(turn: Turn) -> Parts:
    """Which kind of call was wrong, how wrong each output is, where, and what that looks like."""
    if turn.verdict.rule == Rule.INPUTS_MODIFIED:
        return _inputs_modified(turn)
    timed = turn.verdict.rule == Rule.TIMED_ITERATION
    headline = (
        "Your kernel is right when called for the first time, and wrong in a timed iteration."
        if timed
        else "Your kernel runs, and its result is wrong."
    )
    facts = [_which_call(turn, timed), *output_facts(turn), *sanitizer_facts(turn), *static_kernels(turn)]
    # Of the speed nothing is known yet, but what the compiler says of it is as true of the next version.
    advice = (*safety_advice(turn), *_advice(turn, timed), *remarks(turn))
    return Parts(headline, tuple(fact for fact in facts if fact), advice)


def _inputs_modified(turn: Turn) -> Parts:
    return Parts(
        "Your kernel changes one of its inputs. Inputs must be left as they are.",
        (*output_facts(turn), *sanitizer_facts(turn)),
        (
            "Use scratch memory of your own for intermediate results, and check that no store goes through the "
            "pointer or tensor map of an input.",
        ),
    )


def wrong_call(turn: Turn) -> CheckedCall | None:
    """The call that decides: the first wrong correctness call, else the first wrong timed one."""
    calls = [call for trial in turn.evidence.run.trials for call in trial.checks]
    calls.sort(key=lambda call: call.iteration != CORRECTNESS_CALL)
    return next((call for call in calls if any(map(call.disagrees, call.outputs))), None)


def output_facts(turn: Turn) -> list[str]:
    """Facts on each output of the call that decides; empty where all outputs were right."""
    call = wrong_call(turn)
    if call is None:
        return []
    wrong = [output for output in call.outputs if call.disagrees(output)]
    facts = [_output(turn, output) for output in wrong]
    facts += [f"{output.name} is right." for output in call.outputs if output not in wrong]
    return [*facts, *(f"{output.name}: {fact}" for output in wrong for fact in _details(turn, output))]


def _which_call(turn: Turn, timed: bool) -> str:
    if timed:
        return (
            "Every timed iteration gets other data at the same addresses and outputs filled with NaN; the first call "
            "of each trial was right so far."
        )
    for number, trial in enumerate(turn.evidence.run.trials, 1):
        wrong = any(call.disagrees(output) for call in trial.checks for output in call.outputs)
        if wrong and number > 1:
            return f"It is the first call of trial {number} of {turn.case.trials}; those before it were right."
    return "It is wrong in its very first call."


def _output(turn: Turn, output: OutputComparison) -> str:
    share = output.mismatched / output.elements if output.elements else 0.0
    shape = "x".join(map(str, output.shape))
    kinds = "; ".join(kind_facts(output, _head_size(turn)))
    if output.nan == output.elements:
        return f"{output.name} [{shape}]: all {output.elements:,} elements are NaN, as before they are written."
    finite = "Over the finite elements: largest" if output.nan else "Largest"
    return (
        f"{output.name} [{shape}]: {output.mismatched:,} of {output.elements:,} elements ({percent(share)}) differ by "
        f"more than {output.atol:g} + {output.rtol:g} x |reference|{kinds and f'; {kinds}'}. {finite} error "
        f"{output.max_abs_error:.3g}; RMS of the error {output.rms_error:.3g}, of the reference "
        f"{output.rms_reference:.3g} (relative {output.relative_rms:.3g})."
    )


def _details(turn: Turn, output: OutputComparison) -> Iterator[str]:
    if output.nan == output.elements:
        return
    names = [str(axis) for axis in turn.case.definition.outputs[output.name].shape or ()]
    if output.where is not None and len(names) == len(output.where.axes):
        yield from axis_facts(output.where, names)
    if output.first_mismatches:
        first = ", ".join(str(index) for index in output.first_mismatches[:_INDICES])
        yield f"The first wrong elements, in row-major order, are at {first}."
    if missing := _missing_terms(turn, output, output.mismatched / output.elements):
        yield missing


def _head_size(turn: Turn) -> int | None:
    return turn.case.axes.get("D") if turn.case.op == "attention" else None


def _missing_terms(turn: Turn, output: OutputComparison, share: float) -> str:
    """How many terms of each sum an error of this size is worth, where independent terms add up."""
    inputs, outputs = turn.case.definition.inputs.values(), turn.case.definition.outputs.values()
    summed = {axis for tensor in inputs for axis in tensor.shape or ()} - {
        axis for tensor in outputs for axis in tensor.shape or ()
    }
    related = output.where is None or (output.where.correlation or 0.0) > 0.9
    if turn.case.op != "gemm" or len(summed) != 1 or output.nan or share < _MOST or not related:
        return ""
    axis = str(summed.pop())
    terms = turn.case.axes[axis] * output.relative_rms**2
    if not math.isfinite(terms) or not 0.5 <= terms <= turn.case.axes[axis] / 4:
        return ""
    return (
        f"An error of this size is what leaving out, or adding wrongly, about {terms:.0f} of the "
        f"{turn.case.axes[axis]:,} terms along {axis} gives, in every sum."
    )


def _unrelated(turn: Turn, output: OutputComparison) -> bool:
    """Whether the wrong elements can be other data, rather than incomplete or scaled results."""
    if output.where is not None:
        return abs(output.where.correlation or 0.0) < _MOST
    return not _missing_terms(turn, output, output.mismatched / output.elements)


def _advice(turn: Turn, timed: bool) -> list[str]:
    if timed:
        return [
            "State that outlives a call: barriers or counters in global memory that are not reset, results, pointers "
            "or flags kept in static variables, scratch memory that is assumed to be zero.",
            "A race: shared memory that is overwritten before everyone has read it, a wait with the wrong parity, a "
            "missing fence between generic and asynchronous access (fence.proxy.async), a missing wait for stores.",
            "Work on another stream than the one that TVM-FFI's environment gives.",
        ]
    call = wrong_call(turn)
    wrong = [output for output in call.outputs if call.disagrees(output)] if call is not None else []
    advice = []
    other = [output for output in wrong if output.nan < output.mismatched]
    if len(other) < len(wrong):
        advice.append("Elements that nobody writes: the grid's extent, the last tile's bounds, the loop over tiles.")
    elif any(output.nan for output in wrong):
        advice.append("NaN: unwritten elements, a maximum that starts as NaN, inf - inf, 0/0 in a fully masked row.")
    if any(_unrelated(turn, output) for output in other):
        advice.append(
            "Layouts: strides and swizzle of shared memory descriptors against the tensor map's, K-major or MN-major "
            "operands, which accumulator register belongs to which row and column, the order of tile coordinates."
        )
    advice.append(
        "Bounds of the main loop and its last step; that all of a stage has arrived before it is read, and has been "
        "read before it is overwritten; that wgmma has been waited for before its accumulators are used."
    )
    if turn.case.op == "attention":
        advice.append(
            "Softmax: scale 1/sqrt(D) applied once, exp2 with log2(e), earlier sums and O rescaled when the maximum "
            "grows, division by the row's sum at the end"
            + ("; the mask on diagonal tiles." if turn.case.causal else ".")
        )
    return advice
