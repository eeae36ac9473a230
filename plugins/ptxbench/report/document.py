"""The JSON report: its models. docs/report-schema.md explains them; docs/report.schema.json is generated from them.

The document depends on the turns alone: it is sorted, and holds no clock, path or process of the run that wrote it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ptxbench.records import InfrastructureFault, Record, Sha256, TurnKey, Usage, Verdict
from ptxbench.report.calls import Calls
from ptxbench.report.cell import BaselineUse, Cell, EvidenceOrigin


class CallRow(Record):
    """The call that a turn rests on. Prompt and reply are in the run folder."""

    model: str
    """What answered, in the provider's words."""
    ended: Literal["stop", "output_limit", "filtered", "unknown"]
    usage: Usage
    """Tokens: input, cached input, output, and of the output those of reasoning."""
    cost_usd: float | None
    cost_source: str
    latency_s: float
    """From the request to the last byte of the answer, without failed attempts."""
    failed_attempts: int
    prompt_sha256: str
    """Of the whole list of messages."""
    pack: str
    """Name and version of the knowledge pack."""
    level: str
    """How much of the pack the prompt held."""
    asked_at: str | None = None
    """UTC, ISO 8601."""
    pack_sha256: Sha256 | None = None
    """Of the pack's text as it was sent."""
    template: str | None = None
    """Version of our own instructions."""


class EndRow(Record):
    """A trajectory that has fewer turns than it was given."""

    key: TurnKey
    """The first turn that did not happen."""
    reason: str
    """``target_reached``, ``context_exhausted``, ``budget``, ``stopped`` or ``unmeasured``."""
    message: str


class Instructions(Record):
    """SASS of a turn by family: the opcode up to its first dot."""

    static: dict[str, int]
    """Family -> lines in the whole object."""
    executed: dict[str, int] | None = None
    """Family -> predicate-enabled thread executions in one call, all kernels. None where nothing was counted."""


class LatencySamples(Record):
    """The timed iterations of all trials, milliseconds, by the clock that the verdict's latency was read from."""

    count: int
    trial_medians_ms: tuple[float, ...]
    """The verdict's latency is the median of these (by the oracle's clock: never less than CUPTI's)."""
    min_ms: float
    q1_ms: float
    median_ms: float
    q3_ms: float
    max_ms: float
    mean_ms: float
    stddev_ms: float
    """Of the sample (n - 1); 0 for one iteration."""
    whisker_low_ms: float
    """Least iteration that is within 1.5 interquartile ranges of the first quartile."""
    whisker_high_ms: float
    """Largest iteration that is within 1.5 interquartile ranges of the third quartile."""
    outliers: int
    """Iterations beyond the whiskers."""
    beyond_stddev: int
    """Iterations further from the mean than one standard deviation."""


class Roofline(Record):
    """Useful work of one call over the turn's latency."""

    flops: int
    """Of the workload, by the suite's formula; a multiply-add is two."""
    bytes: int
    """Compulsory traffic of the workload, by the suite's formula."""
    tflops: float
    """10^12 FLOP/s."""
    gbytes_per_s: float
    """10^9 byte/s."""
    peak_tflops: float | None = None
    """Dense BF16 ceiling of the device at its highest SM clock; None where the driver does not tell the clock."""
    peak_gbytes_per_s: float | None = None
    """Theoretical memory bandwidth of the device."""


class TurnRow(Record):
    """One turn. The rates follow from ``key``, ``verdict`` and ``fault``; the hashes say what was judged."""

    id: str
    """Also the pytest parameter id."""
    key: TurnKey
    definition: str
    workload_uuid: str
    variant_name: str
    origin: str
    """Where the source came from: ``reference``, ``file``, ``replay``, ``model``, or ``imported`` for a result that
    somebody else measured and judged."""
    source_sha256: str | None
    cubin_sha256: str | None
    verdict: Verdict
    evidence_origin: EvidenceOrigin
    device: str | None
    measured_at: str | None
    """UTC, ISO 8601."""
    harness: str | None
    """Version of PTXBench that measured."""
    baseline: BaselineUse | None
    min_speedup: float | None
    fault: InfrastructureFault | None
    call: CallRow | None = None
    instructions: Instructions | None = None
    """None where nothing was built or the object could not be inspected."""
    samples: LatencySamples | None = None
    """None where there is no latency."""
    roofline: Roofline | None = None
    """None where there is no latency, or the suite of the case is not known to the reporter."""
    stages_ms: dict[str, float] = Field(default_factory=dict)
    """Wall time of build, evaluate, sanitize, instructions and judge."""
    gpu_stages_ms: dict[str, float] = Field(default_factory=dict)
    """Wall time of the parts of ``evaluate``."""


class Clocks(Record):
    """SM clocks read right behind the timed calls, MHz."""

    readings: int
    lowest_mhz: int
    median_mhz: float
    highest_mhz: int
    limited_by: dict[str, int]
    """What held the clock down -> readings in which it did."""


class DeviceUse(Record):
    """A device that turns were measured on."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    max_sm_clock_mhz: int
    memory_bandwidth_bytes_per_s: int
    driver: str
    cuda_runtime: str
    turns: int
    clocks: Clocks | None = None
    """None in evidence that has none."""


class PromptUse(Record):
    """Texts that prompts were assembled from."""

    template: str
    pack: str
    pack_sha256: Sha256
    level: str
    calls: int


class CompilerUse(Record):
    """A toolchain that candidates were built with."""

    nvcc: str
    host_compiler: str
    disassembler: str
    flags: tuple[str, ...]
    tvm_ffi: str
    headers: str
    builds: int


class Code(Record):
    """PTXBench itself."""

    version: str
    commit: str | None
    """Of the checkout; None outside of one."""
    sha256: Sha256
    """Of the package's files, committed or not."""


class Environment(Record):
    """What the turns were made with. Each list holds every value that occurs, sorted; more than one is a mixture."""

    devices: tuple[DeviceUse, ...] = ()
    libraries: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Library of the GPU side -> versions."""
    compilers: tuple[CompilerUse, ...] = ()
    prompts: tuple[PromptUse, ...] = ()
    harnesses: tuple[str, ...] = ()
    """Versions of PTXBench that measured."""
    suites: dict[str, Sha256] = Field(default_factory=dict)
    """Suite -> hash of its content: definitions, workloads, tolerances, protocol numbers, architectures."""
    reporter: Code | None = None
    """What wrote the report."""


class Bootstrap(Record):
    """How the intervals were made."""

    unit: Literal["trajectory"] = "trajectory"
    method: Literal["percentile"] = "percentile"
    resamples: int
    level: float
    """Coverage, 0..1."""
    seed: int


class RunReport(Record):
    """The whole report."""

    schema_version: Literal[1, 2] = 2
    """Documents of version 1 hold less; what they lack has a default."""
    cells: tuple[Cell, ...]
    turns: tuple[TurnRow, ...]
    ends: tuple[EndRow, ...] = ()
    """Sorted as the turns are."""
    calls: Calls | None = None
    """Of all turns; None where no language model was asked."""
    environment: Environment | None = None
    """None in documents of version 1."""
    bootstrap: Bootstrap | None = None
    """None in documents of version 1, which have no intervals."""
