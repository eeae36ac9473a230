"""The precision gate, and inputs beyond the official distribution.

The official tolerance says little of outputs that are small, and nothing of inputs that no trial had. Here errors are
measured by the size of the outputs and compared with the library's own against the same reference. Nothing here changes
an outcome: what fails is flagged and has no speedup.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.records import CheckedCall, Evidence, FamilyCheck, OutputComparison
from ptxbench.verdict.rules import Flag

PRECISION_BOUND = 4.0
"""Scale-relative error, in the library's own, beyond which a result is of low precision."""
FLOORS = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-16}
"""Scale-relative error by output type that is never of low precision, however exact the library is: half a unit in the
last place where rounding the output costs that much anyway, and of fp32 outputs what sums of thousands of products and
the approximate exponential cost. An FP8 product costs ten times as much as BF16's floor, a BF16 sum a hundred times as
much as FP32's."""
BLOCK_FLOOR = 4.0
"""``FLOORS`` for the worst of an output's blocks, as a multiple: the worst of thousands of small blocks is noisier than
the whole. Emulated kernels that round in different places differ in it by up to a factor of 2.1 where a library is as
exact as 1.7e-3 (attention of large scores); one FP8 head has 2.5e-2."""
FAMILY_CEILING = 0.01
"""A family in which the library's own error is larger says nothing: four times as much would let wrong results pass."""


def bound(own: float, dtype: str) -> float:
    """The largest scale-relative error of an output beside a library whose own is ``own``."""
    return max(PRECISION_BOUND * own, FLOORS.get(dtype, 0.0))


def block_bound(own: float, dtype: str) -> float:
    """The same of the worst block of an output beside a library whose own worst is ``own``."""
    return max(PRECISION_BOUND * own, BLOCK_FLOOR * FLOORS.get(dtype, 0.0))


def low_precision(output: OutputComparison, library: dict[str, float]) -> bool:
    """Whether an output is less precise than the gate allows.

    False where the library was not measured, and where it has no error at all: then it is the reference itself, which
    says nothing of what a fast kernel's precision may cost.
    """
    own = library.get(output.name, 0.0)
    return own > 0 and not output.relative_rms <= bound(own, output.dtype)  # an error that is NaN is no small one


def precision_flags(evidence: Evidence) -> tuple[Flag, ...]:
    """``low_precision`` where an official checked call is less precise than the gate allows."""
    library = evidence.run.baseline.relative_rms if evidence.run.baseline is not None else {}
    return (Flag.LOW_PRECISION,) if any(low_precision(output, library) for output in _outputs(evidence)) else ()


def _outputs(evidence: Evidence) -> Iterator[OutputComparison]:
    for trial in evidence.run.trials:
        for call in trial.checks:
            yield from call.outputs


def qualified(library: dict[str, float] | None) -> bool:
    """Whether the library computes a family well enough to measure others by it."""
    return bool(library) and all(own <= FAMILY_CEILING for own in (library or {}).values())


def family_passes(call: CheckedCall, library: dict[str, float], worst: dict[str, float] | None = None) -> bool:
    """Whether a call on a family of inputs is right, by the library's own errors there and those of its worst blocks.

    No value may be NaN or infinite where the reference is not, every output must be as precise as the gate asks, as a
    whole and in its worst block, and inputs and guards must be as they were. Where either side's blocks were not
    measured, they say nothing.
    """
    precise = all(
        output.not_finite == 0
        and output.name in library
        and output.relative_rms <= bound(library[output.name], output.dtype)
        and _blocks_pass(output, worst or {})
        for output in call.outputs
    )
    return precise and bool(call.outputs) and call.inputs_intact and call.guards_intact


def _blocks_pass(output: OutputComparison, worst: dict[str, float]) -> bool:
    found, own = output.worst_block_rms, worst.get(output.name)
    return found is None or own is None or found <= block_bound(own, output.dtype)


def family_flags(evidence: Evidence) -> tuple[Flag, ...]:
    """What the calls on other families say. Nothing in evidence that has none."""
    flags = {_family_flag(check, evidence) for check in evidence.run.families}
    if _escaped(evidence):
        flags.add(Flag.FAMILY_MISMATCH)
    return tuple(sorted(flag for flag in flags if flag is not None))


def _escaped(evidence: Evidence) -> bool:
    """Whether the process ended on one family and so was not called on another, by which it would have been judged."""
    checks, baseline = evidence.run.families, evidence.run.baseline
    if baseline is None or all(check.call is not None for check in checks):
        return False
    called = {check.family for check in checks}
    return any(qualified(library) for family, library in baseline.families.items() if family not in called)


def _family_flag(check: FamilyCheck, evidence: Evidence) -> Flag | None:
    baseline = evidence.run.baseline
    library = baseline.families.get(check.family) if baseline is not None else None
    if library is None or not qualified(library):
        return Flag.FAMILY_UNQUALIFIED
    worst = baseline.families_worst.get(check.family) if baseline is not None else None
    passed = check.call is not None and family_passes(check.call, library, worst)
    return None if passed else Flag.FAMILY_MISMATCH
