"""Raw measurements of one built candidate on one device. No opinion lives here.

Times are nanoseconds unless a name says otherwise. Anything that could not be measured has a
status that says so, never a missing or zero number that could be read as a result.
"""

from __future__ import annotations

import statistics
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from ptxbench.records.base import MOST_COUNT, MOST_NS, Amount, Count, Nanoseconds, Real, Record, Sha256
from ptxbench.records.conditions import Containment, Disturbance, LoadedCode
from ptxbench.records.mismatch import MismatchPattern
from ptxbench.records.safety import SafetyEvidence
from ptxbench.records.tool_status import ToolStatus


class DeviceIdentity(Record):
    """The device and driver that produced the numbers."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: Count
    l2_bytes: Count
    memory_bytes: Count
    max_sm_clock_mhz: Count
    memory_bandwidth_bytes_per_s: Count
    """Theoretical: bus width x memory clock x 2."""
    driver: str
    cuda_runtime: str


class OutputComparison(Record):
    """One output tensor against the reference, by torch.allclose's element rule in fp32.

    ``mismatched`` counts elements with ``|out - ref| > atol + rtol * |ref|``; NaN where the reference is finite
    counts, equal infinities agree. ``rms_error`` and ``rms_reference`` are over finite pairs.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    elements: Count
    atol: float
    rtol: float
    mismatched: Count
    nan: Count
    """NaN in the output where the reference is not NaN; unwritten elements show here, outputs start as NaN."""
    max_abs_error: Real
    max_rel_error: Real
    rms_error: Real
    rms_reference: Real
    worst_block_rms: Real | None = None
    """The largest scale-relative error among the output's blocks (docs/metrics.md). None in official calls, which have
    none measured, and in evidence older than this field."""
    first_mismatches: tuple[tuple[int, ...], ...] = ()
    """Up to 8 indices in row-major order."""
    where: MismatchPattern | None = None
    """None where nothing mismatches, and in evidence older than this field."""

    @property
    def not_finite(self) -> int:
        """Elements that are NaN or infinite where the reference is not: they count in no error's size.

        Where they were not counted apart, every mismatch may be one.
        """
        infinite = self.where.infinite if self.where is not None else self.mismatched
        return self.nan + infinite

    @property
    def relative_rms(self) -> float:
        """RMS of the error over RMS of the reference: the scale-relative error."""
        return self.rms_error / self.rms_reference if self.rms_reference > 0 else float(self.rms_error > 0)


CORRECTNESS_CALL = -1
"""``CheckedCall.iteration`` of a trial's correctness call."""
TIMED_MISMATCH_SHARE = 1e-6
"""Share of an output's elements that a timed iteration may have beyond tolerance. The official rule allows none and is
applied to the correctness calls. Of 96 checked calls of honest causal backward passes one had elements beyond it, one
of dQ and two of dK, of 10^8 each (H200), taken for BF16 rounding of P (dO V^T - delta). An iteration that did not do
its work is wrong nearly everywhere."""


def tolerated_mismatches(iteration: int, elements: int) -> float:
    """Elements of an output that a checked call may have beyond tolerance."""
    return 0.0 if iteration == CORRECTNESS_CALL else TIMED_MISMATCH_SHARE * elements


def _may_be_rounding(output: OutputComparison) -> bool:
    few = output.mismatched <= TIMED_MISMATCH_SHARE * output.elements
    inexact = output.atol > 0 or output.rtol > 0
    return few and output.not_finite == 0 and (inexact or output.mismatched == 0)


class CheckedCall(Record):
    """A call of the candidate whose outputs were compared in full."""

    iteration: Annotated[int, Field(ge=CORRECTNESS_CALL, le=MOST_COUNT)]
    """``CORRECTNESS_CALL``, else the index among the trial's timed iterations."""
    outputs: tuple[OutputComparison, ...]
    inputs_intact: bool
    guards_intact: bool

    def disagrees(self, output: OutputComparison) -> bool:
        """Whether one of its outputs is further from the reference than this kind of call may be."""
        return output.mismatched > tolerated_mismatches(self.iteration, output.elements) or output.nan > 0

    @property
    def is_near_miss(self) -> bool:
        """Whether a correctness call failed by so few elements that rounding may have done it: as many as a timed
        iteration may have, all of them finite, and none of an output that has to be exact. Rounding differs from kernel
        to kernel, so that no choice of the draw spares every honest one; another draw tells it from a fault."""
        return (
            self.iteration == CORRECTNESS_CALL
            and self.inputs_intact
            and self.guards_intact
            and any(map(self.disagrees, self.outputs))
            and all(map(_may_be_rounding, self.outputs))
        )


OFFICIAL_FAMILY = "normal"
"""Family of the inputs of every trial, whose own ``family`` names the recipe: the official workload's distribution."""


class FamilyCheck(Record):
    """One checked call on inputs of another kind than the official workload's, behind the trials."""

    family: str
    call: CheckedCall | None
    """None where there was no result."""
    message: str = ""
    """Why there was none."""


class Timing(Record):
    """Samples of one trial, in order. ``span`` is device time from the first activity's start to the last one's end."""

    warmup: Count
    span_ns: tuple[Nanoseconds, ...]
    """Timed iterations only, CUPTI, as reported by the process that ran the kernel."""
    wall_ns: tuple[Nanoseconds, ...]
    """The same iterations by the oracle's own clock: request sent to reply received."""
    activities: tuple[Count, ...]
    """Device activities (kernels, copies, sets) per timed iteration."""
    stray: Count = 0
    """Device activities that started outside every call, or outlasted theirs: work that the spans do not hold."""


POWER_LIMIT = "power limit"


class ClockSample(Record):
    """One reading of the device's SM clock."""

    sm_mhz: int = Field(gt=0)
    limited_by: tuple[str, ...] = ()
    """What holds it down, for example ``POWER_LIMIT``; empty where nothing does."""


class Trial(Record):
    """One trial: one fully checked call, then timed iterations on fresh data."""

    seed: int
    """Names the workload state that the inputs belong to. The keys that they are made from are secret and not kept."""
    family: str
    checks: tuple[CheckedCall, ...]
    near_miss: CheckedCall | None = None
    """A correctness call on a draw that the one in ``checks`` replaces (``CheckedCall.is_near_miss``), at most one."""
    guards_intact: bool
    """Guard bands around every buffer after all calls of the trial; ``CheckedCall`` has them as of that call."""
    timing: Timing | None = None
    clock: ClockSample | None = None
    """Right behind the timed calls, for feedback and for ``RunEvidence.disturbances``. None where the driver does not
    tell and in older evidence."""


class RunStatus(StrEnum):
    """How the candidate's process ended."""

    COMPLETED = "completed"
    LOAD_ERROR = "load_error"
    RUNTIME_ERROR = "runtime_error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


class KernelLaunch(Record):
    """A kernel seen at run time; ``launches_per_call`` is the average over all calls but warm-ups."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int
    registers: int
    launches_per_call: float


DRIFT_BOUND = 0.10
"""A baseline that moved by more than this beside the candidate has the evaluation repeated; if it stays, the judge
flags it. Wide, since a power-limited device reads a short burst up to 9% faster than the sustained series of the
qualifying measurement (H200, backward d128)."""


class ExactErrors(Record):
    """Scale-relative errors on one official draw against an oracle of higher precision, per output.

    Outputs that are not finite in the oracle count on neither side.
    """

    precision: Literal["float64"]
    """What the oracle computes in. Its results are not rounded to the outputs' types."""
    library: dict[str, Real]
    reference: dict[str, Real]
    """Of the definition's reference function, rounded to the outputs' types."""


_Spent = Annotated[int, Field(gt=0, le=MOST_NS)]
"""Time that a library call took, ns: one that took none did nothing, and speedups divide by nothing."""


_Difference = Annotated[int, Field(ge=-MOST_NS, le=MOST_NS)]
"""Of two clocks, ns."""


class BaselineMeasurement(Record):
    """The library's latency by the same procedure (same staging, same loop, same clock)."""

    library: str
    version: str
    call: str
    span_ns: tuple[_Spent, ...]
    """All timed iterations of the qualifying measurement that the workload state caches."""
    drift_span_ns: tuple[_Spent, ...] = ()
    """The brief re-timing beside this candidate."""
    overhead_ns: _Difference
    """Median of wall minus span of an empty call: what the hand-over itself costs the oracle's clock."""
    excess_ns: _Difference | None = None
    """Median of wall minus span minus ``overhead_ns`` of the library's own calls: what starting real kernels on this
    workload costs the oracle's clock beyond an empty call. None in evidence older than this field."""
    relative_rms: dict[str, Real] = Field(default_factory=dict)
    """The library's own scale-relative error against the same reference, per output."""
    detail: str = ""
    """The call in full, where ``call`` alone does not say it: settings, backend, what was planned outside of it."""
    exact: ExactErrors | None = None
    """None where no oracle of higher precision knows the operation, and in evidence older than this field."""
    families: dict[str, dict[str, Real]] = Field(default_factory=dict)
    """Family -> output -> the library's scale-relative error there. Infinite for an output with values that are not
    finite where the reference's are; no outputs for a family in which the library failed."""
    families_worst: dict[str, dict[str, Real]] = Field(default_factory=dict)
    """The same of ``OutputComparison.worst_block_rms``. Empty in evidence older than this field."""

    @property
    def drifted(self) -> bool:
        """Whether the re-timing beside the candidate left the bound."""
        if not self.drift_span_ns:
            return False
        return abs(statistics.median(self.drift_span_ns) / statistics.median(self.span_ns) - 1) > DRIFT_BOUND


NO_KERNEL_RAN = "no kernel was on the device"
"""``RunEvidence.waiting_unknown`` where a debugger looked and the host code alone was running."""


class WaitingPlace(Record):
    """Threads of one kernel that were at the same instruction when a call that did not end was looked at."""

    kernel: str
    """Mangled, as in the object."""
    offset: int | None
    """Of the instruction in the kernel's code, in bytes. None in a function of it whose own place is not known."""
    threads: int
    blocks: int
    """Blocks with at least one of these threads."""
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    """One of the threads and its block, as x, y, z."""
    instruction: str = ""
    """The debugger's text of it, length-limited; empty where it gave none."""


class RunEvidence(Record):
    """One evaluation: trials in a sandbox, the baseline beside it."""

    status: RunStatus
    stage: str = ""
    """Where it ended when not completed: ``load``, ``check``, ``time`` or ``drift``."""
    message: str = ""
    error_code: int | None = None
    """CUDA error code or, for a crash, the negative signal number."""
    output_tail: str = ""
    """Quoted, length-limited text of the candidate's stdout and stderr; never parsed."""
    trials: tuple[Trial, ...] = ()
    launches: tuple[KernelLaunch, ...] = ()
    baseline: BaselineMeasurement | None = None
    families: tuple[FamilyCheck, ...] = ()
    """Calls on other families of inputs; empty where a trial had failed, and in evidence older than this field."""
    workload_state_cached: bool = False
    stages_ms: dict[str, Amount] = Field(default_factory=dict)
    """Wall time by stage, for performance work; no rule reads it."""
    waiting: tuple[WaitingPlace, ...] = ()
    """Of a call that did not end, the instructions with the most threads, those first; no rule reads it."""
    waiting_unknown: str = ""
    """Why ``waiting`` is empty. Empty itself where no call was endless, and in evidence older than this field."""
    loaded: LoadedCode | None = None
    """None where the candidate was not loaded to its end, and in evidence older than this field."""
    containment: Containment | None = None
    """None in evidence older than this field."""
    disturbances: tuple[Disturbance, ...] = ()
    """Empty where nothing was seen, where the driver tells nothing, and in evidence older than this field."""


class InstructionCount(Record):
    """Executed counts of one opcode in one kernel, summed over its SASS lines and the launches that the report has.

    Those may be more than one call's: ``ptxbench.verdict.instruction_counts`` tells.
    """

    kernel: str
    opcode: str
    """Full SASS opcode with modifiers, for example ``HGMMA.64x256x16.F32.BF16``."""
    inst_executed: Count
    thread_inst_executed_true: Count


class InstructionEvidence(Record):
    """Nsight Compute's per-line counters over one call on the evaluated workload."""

    status: ToolStatus
    message: str = ""
    tool: str = ""
    counts: tuple[InstructionCount, ...] = ()
    kernels: tuple[str, ...] = ()
    """Kernels that ran, in launch order, as the tool names them."""
    launches: tuple[Count, ...] = ()
    """How many launches of each of ``kernels`` the report has. Empty in evidence older than this field."""
    outputs_match: bool | None = None
    """Whether the outputs under the tool passed the same comparison as without it."""
    wall_ms: Amount | None = None
    """From the tool's start to its end; no rule reads it. None in evidence older than this field."""


class Evidence(Record):
    """Everything measured for one (case, build) on one device."""

    schema_version: Literal[1] = 1
    definition: str
    workload_uuid: str
    arch: str
    candidate_sha256: Sha256
    so_sha256: Sha256
    cubin_sha256: Sha256
    """``Build.cubin_sha256`` of what was measured."""
    harness: str
    """Version of the harness that measured."""
    measured_at: str
    """UTC, ISO 8601."""
    device: DeviceIdentity
    libraries: dict[str, str] = Field(default_factory=dict)
    """Versions of torch, cuDNN, CUPTI and so on, as they were loaded."""
    run: RunEvidence
    instructions: InstructionEvidence = InstructionEvidence(status=ToolStatus.NOT_RUN)
    safety: tuple[SafetyEvidence, ...] = ()
    defences_off: tuple[str, ...] = ()
    """Defences that were switched off when it was measured, by name; such evidence is never scored."""
