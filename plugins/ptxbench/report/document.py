"""The JSON report: its models. docs/report-schema.md explains them; docs/report.schema.json is generated from them.

The document depends on the turns alone: it is sorted, and holds no clock, path or process of the run that wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ptxbench.records import (
    DeviceIdentity,
    Disturbance,
    EndReason,
    InfrastructureFault,
    Record,
    Sha256,
    TurnKey,
    Usage,
    Verdict,
)
from ptxbench.records.base import Amount, Count
from ptxbench.report.calls import Calls
from ptxbench.report.cell import BaselineUse, Cell, CellKey, EvidenceOrigin


class CallRow(Record):
    """The call that a turn rests on. Prompt and reply are in the run folder."""

    model: str
    """What answered, in the provider's words."""
    ended: Literal["stop", "output_limit", "filtered", "unknown"]
    usage: Usage
    """Tokens: input, cached input, output, and of the output those of reasoning."""
    cost_usd: Amount | None
    cost_source: str
    latency_s: Amount
    """From the request to the last byte of the answer, without failed attempts."""
    failed_attempts: Count
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
    reason: EndReason
    message: str


class Instructions(Record):
    """SASS of a turn by family: the opcode up to its first dot."""

    static: dict[str, Count]
    """Family -> lines in the whole object."""
    executed: dict[str, Count] | None = None
    """Family -> predicate-enabled thread executions in one call, all kernels. None where nothing was counted."""


class LatencySamples(Record):
    """The timed iterations of all trials, milliseconds, each by the clock that is believed in its trial."""

    count: Count
    trial_medians_ms: tuple[float, ...]
    """The verdict's latency is the median of these (by the oracle's clock: never less than CUPTI's)."""
    min_ms: float
    q1_ms: float
    median_ms: float
    q3_ms: float
    max_ms: float
    mean_ms: float
    stddev_ms: Amount
    """Of the sample (n - 1); 0 for one iteration."""
    whisker_low_ms: float
    """Least iteration that is within 1.5 interquartile ranges of the first quartile."""
    whisker_high_ms: float
    """Largest iteration that is within 1.5 interquartile ranges of the third quartile."""
    outliers: Count
    """Iterations beyond the whiskers."""
    beyond_stddev: Count
    """Iterations further from the mean than one standard deviation."""


_Work = Annotated[int, Field(gt=0, le=10**18)]
"""FLOPs or bytes of one call: what has none has no intensity."""
_Rate = Annotated[float, Field(ge=1e-12, le=1e18)]
"""Shown on a logarithmic axis."""


class Roofline(Record):
    """Useful work of one call over the turn's latency."""

    flops: _Work
    """Of the workload, by the suite's formula; a multiply-add is two."""
    bytes: _Work
    """Compulsory traffic of the workload, by the suite's formula."""
    tflops: _Rate
    """10^12 FLOP/s."""
    gbytes_per_s: _Rate
    """10^9 byte/s."""
    peak_tflops: _Rate | None = None
    """Dense BF16 ceiling of the device at its highest SM clock; None where the driver does not tell the clock."""
    peak_gbytes_per_s: _Rate | None = None
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
    min_speedup: Amount | None
    fault: InfrastructureFault | None
    call: CallRow | None = None
    instructions: Instructions | None = None
    """None where nothing was built or the object could not be inspected."""
    samples: LatencySamples | None = None
    """None where there is no latency."""
    roofline: Roofline | None = None
    """None where there is no latency, or the suite of the case is not known to the reporter."""
    stages_ms: dict[str, Amount] = Field(default_factory=dict)
    """Wall time of build, evaluate, sanitize, instructions and judge."""
    gpu_stages_ms: dict[str, Amount] = Field(default_factory=dict)
    """Wall time of the parts of ``evaluate``."""
    disturbances: tuple[Disturbance, ...] = ()
    """What disturbed the measurement, or could have; empty where nothing was seen, and in older evidence."""


class Clocks(Record):
    """SM clocks read right behind the timed calls, MHz."""

    readings: Count
    lowest_mhz: Count
    median_mhz: Amount
    highest_mhz: Count
    limited_by: dict[str, Count]
    """What held the clock down -> readings in which it did."""


class DeviceUse(DeviceIdentity):
    """A device that turns were measured on."""

    turns: Count
    clocks: Clocks | None = None
    """None in evidence that has none."""


class PromptUse(Record):
    """Texts that prompts were assembled from."""

    template: str
    pack: str
    pack_sha256: Sha256
    level: str
    calls: Count


class CompilerUse(Record):
    """A toolchain that candidates were built with."""

    nvcc: str
    host_compiler: str
    disassembler: str
    flags: tuple[str, ...]
    tvm_ffi: str
    headers: str
    builds: Count


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
    resamples: Count
    level: Annotated[float, Field(gt=0, lt=1)]
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
    unselected: tuple[TurnKey, ...] = ()
    """Turns of the trajectories that the session did not select. They are not in N, whether or not later ones needed
    them."""
    calls: Calls | None = None
    """Of all turns; None where no language model was asked."""
    environment: Environment | None = None
    """None in documents of version 1."""
    bootstrap: Bootstrap | None = None
    """None in documents of version 1, which have no intervals."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        """What everybody who reads a report counts on, and what build_report keeps."""
        _once("cells", (" ".join(cell.key) for cell in self.cells))
        _once("turns", ((_cell_of(row.key), str(row.key)) for row in self.turns))
        _once("ends", ((_cell_of(end.key), end.key.trajectory_id) for end in self.ends))
        present: dict[CellKey, set[str]] = {cell.key: set() for cell in self.cells}
        for key in (*(row.key for row in self.turns), *(end.key for end in self.ends)):
            # A cell of which nothing but an end is known has no row.
            present.setdefault(_cell_of(key), set()).add(key.trajectory_id)
        cells = {cell.key for cell in self.cells}
        for row in self.turns:
            if _cell_of(row.key) not in cells:
                raise ValueError(f"no cell in cells of the turn {row.key}")
        for number, cell in enumerate(self.cells):
            if cell.trajectories < len(present[cell.key]):
                raise ValueError(
                    f"{cell.trajectories} at cells.{number}.trajectories, of which {len(present[cell.key])} have turns "
                    "or an end"
                )
        if len({tuple(fast.p for fast in at.fast_p) for cell in self.cells for at in cell.limits}) > 1:
            raise ValueError("other thresholds p in some fast_p of cells than in others")
        return self


def _cell_of(key: TurnKey) -> CellKey:
    return CellKey(key.model, key.case, key.arch)


def _once(field: str, names: Iterable[str | tuple[CellKey, str]]) -> None:
    """Raises ValueError for a name that comes twice; an id alone does not say where one of its parts ends."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ValueError(f"{name if isinstance(name, str) else name[1]} {count} times in {field}")
