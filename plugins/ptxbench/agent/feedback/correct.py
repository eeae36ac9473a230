"""A kernel that is right: how fast, by which instructions, with which resources, and what holds it back."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping

from ptxbench.agent.feedback.kernels import static_families
from ptxbench.agent.feedback.limits import Launched, clock_fact, launched, limiters, peak_flops
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.safety_advice import safety_advice, safety_facts
from ptxbench.agent.feedback.sanitizer_findings import sanitizer_facts
from ptxbench.agent.feedback.targets import present_families, target_families
from ptxbench.agent.feedback.wording import count, listed, milliseconds, percent, short_name
from ptxbench.cases.arch import opcode_base
from ptxbench.records import CORRECTNESS_CALL, OutputComparison, Safe, Target, ToolStatus
from ptxbench.verdict.instruction_counts import counts_of_call
from ptxbench.verdict.metrics import TARGET_SPEEDUP
from ptxbench.verdict.precision import bound
from ptxbench.verdict.rules import Flag, TargetRule

_OPCODES = 6
_MIX = 8

_FLAGS = {
    Flag.BASELINE_DRIFT: "the device's clocks moved during the measurement, so the speedup is less exact than usual",
    Flag.CLOCK_DISAGREEMENT: "a clock outside your process saw more time than the device's activities account for; the "
    "latency is that clock's. Work after the call returns, host work or waiting inside the call count",
    Flag.DIFFERS_UNDER_PROFILER: "under the instruction profiler it ran other kernels or gave other outputs",
    Flag.DISTURBED: "something outside of your kernel disturbed the measurement, also when it was repeated, so there "
    "is no speedup",
    Flag.FAMILY_MISMATCH: "right on standard normal inputs only, so there is no speedup: on inputs that are shifted, "
    "have rows of large values or, where there are several sequences, other lengths, it fails or is far off",
    Flag.FAMILY_UNQUALIFIED: "nothing is known of inputs that are not standard normal: the library was no measure",
    Flag.IMPLAUSIBLE: "the latency is below what the device can physically do, so there is no speedup: work is missing "
    "from the timed calls",
    Flag.LOADED_CODE_UNKNOWN: "what code the process had loaded could not be seen, so there is no speedup",
    Flag.LOW_PRECISION: "within tolerance, and so much less precise than the library that there is no speedup (the "
    "errors above say which output): accumulate in FP32 and round once",
    Flag.NO_BASELINE: "the library was not measured, so there is no speedup",
    Flag.STRAY_ACTIVITY: "device work started outside the calls, so there is no speedup: everything must be launched "
    "by the call, on the stream of TVM-FFI's environment or on streams that are joined to it before the call returns",
    Flag.TIMING_INCOMPLETE: "some timed iterations are missing, so there is no latency",
    Flag.TIMING_UNCHECKED: "no timed call was compared, so there is no speedup",
}


def describe(turn: Turn) -> Parts:
    """Latency and speedup first, then instructions, kernels, precision, flags; advice is what holds it back."""
    unsafe = [*sanitizer_facts(turn), *safety_facts(turn)]
    facts = [
        *_speed(turn),
        *(unsafe if turn.verdict.safe is Safe.NO else ()),
        *clock_fact(turn),
        *_target(turn),
        *_kernels(turn),
        *_mix(turn),
        *_precision(turn),
        *_flags(turn),
    ]
    told = facts if turn.verdict.safe is Safe.NO else [*facts, *unsafe]
    return Parts(_headline(turn), tuple(told), (*safety_advice(turn), *limiters(turn)))


def _headline(turn: Turn) -> str:
    speedup, library = turn.verdict.speedup, turn.case.baseline.library
    unsafe = " It is not safe: its behaviour is undefined, see the facts." if turn.verdict.safe is Safe.NO else ""
    if speedup is None:
        return f"Your kernel is correct. Its speed does not count as it is: see the facts.{unsafe}"
    reached = f" That reaches the goal of {TARGET_SPEEDUP}x." if speedup >= TARGET_SPEEDUP else ""
    return f"Your kernel is correct and runs at {speedup:.3f}x the speed of {library}.{reached}{unsafe}"


def _speed(turn: Turn) -> Iterator[str]:
    verdict, case = turn.verdict, turn.case
    if verdict.latency_ms is None:
        return
    library = f"{case.baseline.library} ({case.baseline.call})"
    baseline = f"; {library}: {milliseconds(verdict.baseline_ms)}" if verdict.baseline_ms is not None else ""
    yield f"Latency {milliseconds(verdict.latency_ms)}, cold L2, median{_trials(turn)}{baseline}."
    if verdict.roofline_share is not None:
        seconds, device = verdict.latency_ms / 1e3, turn.evidence.device
        # No FLOPs are claimed of an operator that no suite knows.
        flops = f"{case.flops / seconds / 1e12:.0f} TFLOP/s of {peak_flops(turn) / 1e12:.0f} and " if case.flops else ""
        moved = case.bytes / seconds / 1e12
        yield (
            f"{flops}{moved:.2f} TB/s of "
            f"{device.memory_bandwidth_bytes_per_s / 1e12:.2f} (inputs and outputs once): "
            f"{percent(verdict.roofline_share)} of the roofline, which is bound by {_bound(turn)}."
        )


def _trials(turn: Turn) -> str:
    """How far the trials' own medians lie apart: what a difference between two answers must exceed to be one."""
    timings = [trial.timing for trial in turn.evidence.run.trials if trial.timing is not None]
    medians = [statistics.median(timing.span_ns) / 1e6 for timing in timings if timing.span_ns]
    if len(medians) < 2 or turn.verdict.latency_source != "cupti":
        return ""
    return f" ({len(medians)} trials: {milliseconds(min(medians))} to {milliseconds(max(medians))})"


def _bound(turn: Turn) -> str:
    device, case = turn.evidence.device, turn.case
    flops = peak_flops(turn)
    if not flops or not device.memory_bandwidth_bytes_per_s:
        return "the ceiling that is known"
    return "compute" if case.flops / flops >= case.bytes / device.memory_bandwidth_bytes_per_s else "memory bandwidth"


def _target(turn: Turn) -> Iterator[str]:
    verdict = turn.verdict
    if verdict.target is Target.EXECUTED:
        counts = Counter[str]()
        for row in counts_of_call(turn.evidence):
            if turn.case.arch.selects(row.opcode) and row.thread_inst_executed_true > 0:
                counts[row.opcode] += row.inst_executed
        shown = listed((f"{opcode} {number:,}" for opcode, number in counts.most_common()), _OPCODES)
        yield f"Target instructions executed (per warp, one call): {shown or present_families(verdict.families)}."
        if verdict.useful_share is not None:
            yield f"Its matrix instructions do {verdict.useful_share:.2f} times the FLOPs that the workload needs."
    elif verdict.target_rule == TargetRule.ABSENT:
        yield f"No target instruction is in the object: it needs {target_families(turn.case)}."
    elif verdict.target is Target.NOT_EXECUTED:
        yield f"Target instructions are in the object and none executed: {', '.join(verdict.families)}."
    else:
        present = static_families(turn)
        yield f"Whether target instructions executed is not known; lines of SASS in the object: {present or 'none'}."


def _kernels(turn: Turn) -> Iterator[str]:
    kernels = launched(turn)
    if kernels:
        total = sum(kernel.launch.launches_per_call for kernel in kernels)
        yield f"Launches per call: {total:g}\n" + "\n".join(f"  {_kernel(kernel)}" for kernel in kernels[:4])


def _kernel(kernel: Launched) -> str:
    launch, held = kernel.launch, kernel.occupancy
    often = f"{launch.launches_per_call:g} times " if launch.launches_per_call != 1 else ""
    spilled = f"spills {kernel.spill_bytes} bytes" if kernel.spill_bytes else "no spills"
    text = (
        f"{short_name(launch.name)}: {often}grid {_extent(launch.grid)}, block {_extent(launch.block)}, "
        f"{launch.registers} registers at launch, {spilled}, shared memory {kernel.static_smem_bytes:,} static + "
        f"{launch.dynamic_smem_bytes:,} dynamic bytes"
    )
    if held is None:
        return text
    held_text = f"{count(held.blocks, 'block')} ({held.warps} warps, {percent(held.share)})"
    return f"{text}; {held_text} per SM, bounded by {held.bound_by}"


def _extent(extent: tuple[int, int, int]) -> str:
    return "x".join(map(str, extent))


def _mix(turn: Turn) -> Iterator[str]:
    """What the warps issue most: shows what the time beside the matrix instructions goes to."""
    if turn.evidence.instructions.status is not ToolStatus.OK:
        return
    counts = Counter[str]()
    for row in counts_of_call(turn.evidence):
        counts[opcode_base(row.opcode)] += row.inst_executed
    total = sum(counts.values())
    if total:
        shown = ", ".join(f"{opcode} {percent(number / total)}" for opcode, number in counts.most_common(_MIX))
        yield f"Of {total:,} instructions executed per warp in one call: {shown}."


def _precision(turn: Turn) -> Iterator[str]:
    """Beside the library's own errors and the gate's bound, so that nobody meets the gate unwarned."""
    baseline = turn.evidence.run.baseline
    library = baseline.relative_rms if baseline is not None else {}
    own: dict[str, float] = {}
    limits: dict[str, str] = {}
    for trial in turn.evidence.run.trials:
        for call in trial.checks:
            if call.iteration == CORRECTNESS_CALL:
                for output in call.outputs:
                    own[output.name] = max(own.get(output.name, 0.0), output.relative_rms)
                    limits[output.name] = _limit(output, library)
    shown = [f"{name} {error:.2g}{limits[name]}" for name, error in own.items()]
    if shown:
        yield f"RMS of the error over RMS of the reference: {', '.join(shown)}."


def _limit(output: OutputComparison, library: Mapping[str, float]) -> str:
    if output.name not in library:
        return ""
    theirs = library[output.name]
    if not theirs:
        return f" (the library's {theirs:.2g})"
    return f" (the library's {theirs:.2g}; for a speedup at most {bound(theirs, output.dtype):.2g})"


def _flags(turn: Turn) -> Iterator[str]:
    for flag in turn.verdict.flags:
        known = flag in set(Flag)
        yield f"Flag {flag}: {_FLAGS[Flag(flag)] if known else 'see the facts'}."
