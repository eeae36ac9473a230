"""What holds a correct kernel back: simple rules over facts of the record, each said only where the facts show it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ptxbench.agent.feedback.compiler_log import read_messages
from ptxbench.agent.feedback.kernels import resources_of
from ptxbench.agent.feedback.occupancy import Occupancy, occupancy, sm_limits
from ptxbench.agent.feedback.opcodes import holds, opcodes_of
from ptxbench.agent.feedback.parts import Turn
from ptxbench.agent.feedback.wording import percent, short_name
from ptxbench.records import POWER_LIMIT, ClockSample, KernelLaunch, Target
from ptxbench.verdict.kernel_names import is_kernel_of

_FULL_WAVES = 0.9
"""Share of the last wave's places from which an uneven last wave is not worth telling."""
_NEAR_ROOFLINE = 0.8
_TOO_MUCH_WORK = 1.15
_MATRIX_WORK = 0.9
_FEW_WARPS = 8
_TWO_CONSUMERS = 256
"""Threads of a block from which two warpgroups can multiply."""


class Launched(NamedTuple):
    """A kernel as it was launched."""

    launch: KernelLaunch
    static_smem_bytes: int
    spill_bytes: int
    occupancy: Occupancy | None
    """None on an architecture whose limits are not known."""

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return math.prod(self.launch.grid)

    @property
    def threads(self) -> int:
        """Of a block."""
        return math.prod(self.launch.block)


def launched(turn: Turn) -> list[Launched]:
    """Every kernel configuration of the timed iterations, most threads first."""
    limits = sm_limits(turn.case.arch.compute_capability)
    found = []
    for launch in turn.evidence.run.launches:
        reports = [report for name, report in resources_of(turn).items() if is_kernel_of(launch.name, (name,))]
        static = max((report.static_smem_bytes for report in reports), default=0)
        spilled = max((max(report.spill_store_bytes, report.spill_load_bytes) for report in reports), default=0)
        threads = math.prod(launch.block)
        held = None
        if limits is not None:
            held = occupancy(threads, launch.registers, static + launch.dynamic_smem_bytes, limits)
        found.append(Launched(launch, static, spilled, held))
    return sorted(found, key=lambda kernel: -kernel.blocks * kernel.threads)


def peak_flops(turn: Turn) -> float:
    """The device's dense BF16 FLOP/s at its highest clock; 0 where the driver does not tell."""
    device = turn.evidence.device
    return device.sm_count * turn.case.arch.bf16_flops_per_clock_per_sm * device.max_sm_clock_mhz * 1e6


def limiters(turn: Turn) -> Iterator[str]:
    """What the facts show, the heaviest first."""
    yield from _instructions(turn)
    yield from remarks(turn)
    kernels = launched(turn)
    # One kernel can have several configurations, and says the same of each.
    yield from dict.fromkeys(text for kernel in kernels for text in _kernel(turn, kernel, alone=len(kernels) == 1))
    yield from _ceiling(turn)


def _instructions(turn: Turn) -> Iterator[str]:
    verdict, arch = turn.verdict, turn.case.arch
    opcodes = opcodes_of(turn)
    matrix = any(arch.is_matrix(opcode) for opcode in opcodes)
    if not matrix and opcodes:
        older = "; its HMMA (mma.sync) has a lower ceiling" if "HMMA" in opcodes else ""
        yield f"No matrix instruction of {arch.title} is in the object{older}. That bounds the speed most."
    elif verdict.target is Target.NOT_EXECUTED:
        yield "The architecture's own instructions are in the object and never execute: the work is done elsewhere."
    elif verdict.useful_share is not None and verdict.useful_share < _MATRIX_WORK:
        yield (
            f"Only {percent(verdict.useful_share)} of the workload's FLOPs are done by the architecture's matrix "
            "instructions; the rest runs on slower units."
        )
    elif verdict.useful_share is not None and verdict.useful_share > _TOO_MUCH_WORK:
        masked = ", for example on tiles that the mask empties" if turn.case.causal else ""
        yield f"The matrix instructions do {verdict.useful_share:.2f} times the FLOPs that the workload needs{masked}."
    if matrix and not holds(turn, "TMA loads") and "LDGSTS" not in opcodes and "LDG" in opcodes:
        yield "Tiles are loaded through registers (LDG); TMA or cp.async would load while the tensor cores work."


def remarks(turn: Turn) -> Iterator[str]:
    """What the compiler said beside errors, for example that wgmma was serialized."""
    for message in [message for message in read_messages(turn.build.log) if message.kind != "error"][:3]:
        yield f"The compiler remarks: {message.quoted(turn.source, 0)}"


def _kernel(turn: Turn, kernel: Launched, *, alone: bool) -> Iterator[str]:
    name, sms = short_name(kernel.launch.name), turn.evidence.device.sm_count
    if kernel.spill_bytes:
        yield f"{name} spills {kernel.spill_bytes} bytes per thread to local memory: keep fewer values live."
    held = kernel.occupancy
    if kernel.blocks < sms:
        if alone:  # else others may run beside it
            yield f"{name} has {kernel.blocks} blocks for {sms} SMs: {sms - kernel.blocks} SMs stay idle."
    elif held is not None and held.blocks:
        places = sms * held.blocks
        waves = kernel.blocks / places
        if waves / math.ceil(waves) < _FULL_WAVES:
            yield (
                f"{name} runs in {waves:.2f} waves of {places} blocks: the last wave is mostly empty. Choose a tile "
                "or a persistent grid that divides the work evenly."
            )
    if held is not None and 0 < held.warps < _FEW_WARPS:
        yield f"{name} has only {held.warps} warps on an SM, bounded by {held.bound_by}: little hides latency."


def clock_fact(turn: Turn) -> Iterator[str]:
    """A sample of the clock behind the timed calls. Within them it may have been another."""
    clock = _clock(turn)
    if clock is not None:
        limits = f"; limits in force: {', '.join(clock.limited_by)}" if clock.limited_by else ""
        yield f"SM clock by NVML right behind the timed calls: {clock.sm_mhz:,} MHz of {_highest_mhz(turn):,}{limits}."


def _clock(turn: Turn) -> ClockSample | None:
    """The median trial's."""
    samples = [trial.clock for trial in turn.evidence.run.trials if trial.clock is not None]
    return sorted(samples, key=lambda sample: sample.sm_mhz)[len(samples) // 2] if samples else None


def _highest_mhz(turn: Turn) -> int:
    return turn.evidence.device.max_sm_clock_mhz


def _ceiling(turn: Turn) -> Iterator[str]:
    share = turn.verdict.roofline_share
    if share is not None and share >= _NEAR_ROOFLINE:
        yield f"It is at {percent(share)} of the device's ceiling: little is left to gain."
        return
    useful, latency, peak = turn.verdict.useful_share, turn.verdict.latency_ms, peak_flops(turn)
    if not useful or not latency or not peak:
        return
    busy = useful * turn.case.flops / (peak * latency / 1e3)
    if busy < _NEAR_ROOFLINE:
        at_most = f"At the highest clock its matrix instructions would take {percent(busy)} of the latency"
        yield f"{at_most}{_of_the_library(turn, peak)}. {_at_the_clock(turn, busy)}"
        yield from _untried(turn)


def _of_the_library(turn: Turn, peak: float) -> str:
    """How near the library comes to the same ceiling: what is left to gain beside it."""
    baseline = turn.verdict.baseline_ms
    if not baseline:
        return ""
    return f"; the workload's FLOPs would take {percent(turn.case.flops / (peak * baseline / 1e3))} of the library's"


def _at_the_clock(turn: Turn, busy: float) -> str:
    """The share at the clock that was there, and what the rest is."""
    clock = _clock(turn)
    if clock is None:
        return "The clock was not measured; under full tensor load it is lower and the true share higher."
    share = busy * _highest_mhz(turn) / clock.sm_mhz
    if share >= 1:
        return "The clock behind the calls was lower than within them: what the tensor cores wait for cannot be told."
    rest = (
        "In the rest the tensor cores wait; for what (tiles, barriers, other arithmetic, the epilogue) was not measured"
    )
    if POWER_LIMIT in clock.limited_by:
        rest += (
            ". Or power held the clock lower within the calls than behind them: then fewer bytes moved and fewer "
            "instructions per product help"
        )
    return f"At the clock behind the calls it is {percent(share)}. {rest}."


def _untried(turn: Turn) -> Iterator[str]:
    """Ways to overlap wgmma that the object shows no sign of; which of them pays is for the model to judge.

    Of what is not known (launches, counts) nothing is said.
    """
    if not holds(turn, "wgmma"):
        return
    kernels, counts = launched(turn), turn.evidence.instructions.counts
    signs = {
        "TMA loads": holds(turn, "TMA loads"),
        "warps that only load, with setmaxnreg": holds(turn, "setmaxnreg"),
        "two or more warpgroups that multiply": not kernels or max(each.threads for each in kernels) >= _TWO_CONSUMERS,
        "a persistent grid": not kernels or min(each.blocks for each in kernels) <= 2 * turn.evidence.device.sm_count,
        "multicast of shared tiles in a cluster": not counts or any("MULTICAST" in row.opcode for row in counts),
        "TMA stores": holds(turn, "TMA stores"),
    }
    absent = [name for name, there in signs.items() if not there]
    if absent:
        yield f"The object shows no sign of: {'; '.join(absent)}."
    else:
        yield (
            "It has TMA loads and stores, loading warps, several multiplying warpgroups, a persistent grid and "
            "multicast. Which part of its schedule or of its instructions costs the rest was not measured."
        )
