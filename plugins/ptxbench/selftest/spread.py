"""How well a latency repeats: the reference solutions, measured again and again in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from ptxbench.cases import Case, load_suite
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler import Profiler
from ptxbench.records import BuildStatus, Candidate
from ptxbench.records.base import Record
from ptxbench.selftest.subjects import SUITE
from ptxbench.toolchain import Built, Toolchain
from ptxbench.verdict import judge
from ptxbench.verdict.order_statistics import median_interval


class Spread(Record):
    """Latencies of one reference solution over evaluations that have nothing in common but the device."""

    case: str
    latencies_ms: tuple[float, ...]
    """In the order of measuring."""
    baselines_ms: tuple[float, ...]
    device: str
    driver: str
    measured_at: tuple[str, ...]
    commit: str

    @property
    def relative_range(self) -> float:
        """Largest less smallest latency, over the median."""
        return (max(self.latencies_ms) - min(self.latencies_ms)) / median(self.latencies_ms)


def repeat(
    root: Path,
    arch: str,
    times: int,
    toolchain: Toolchain,
    profiler: Profiler,
    commit: str,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[list[Spread]], None] = lambda spreads: None,
) -> list[Spread]:
    """Evaluate every reference solution ``times`` times, in rounds, so that time passes between two of one.

    ``keep`` hears of all that was measured behind every round: whoever ends a long series early shall lose nothing.
    Raises InputError for one that is not correct, InfrastructureError for faults that stay.
    """
    built = [(case, _built(root, case, toolchain)) for case in load_suite(root, SUITE).cases(arch)]
    rounds: dict[str, list[tuple[float, float, str]]] = {case.name: [] for case, _ in built}
    found: list[Spread] = []
    for number in range(times):
        tell(f"round {number + 1} of {times}")
        for case, each in built:
            rounds[case.name].append(_latency(profiler, case, each))
        found = _spreads(rounds, profiler, commit)
        keep(found)
    return found


def _spreads(rounds: dict[str, list[tuple[float, float, str]]], profiler: Profiler, commit: str) -> list[Spread]:
    device = profiler.health().device
    assert device is not None
    return [
        Spread(
            case=name,
            latencies_ms=tuple(latency for latency, _, _ in taken),
            baselines_ms=tuple(baseline for _, baseline, _ in taken),
            device=device.name,
            driver=device.driver,
            measured_at=tuple(when for _, _, when in taken),
            commit=commit,
        )
        for name, taken in rounds.items()
    ]


def _built(root: Path, case: Case, toolchain: Toolchain) -> Built:
    path = root / "generated" / "reference" / case.arch.name / case.name / "kernel.cu"
    try:
        built = toolchain.build(Candidate(source=path.read_text(encoding="utf-8")), case.arch)
    except OSError as error:
        raise InputError(f"{path}: expected a reference solution, cannot be read: {error.strerror}") from error
    if built.build.status is not BuildStatus.OK:
        raise InputError(f"{path}: expected a reference solution that builds, found {built.build.status}")
    return built


def _latency(profiler: Profiler, case: Case, built: Built) -> tuple[float, float, str]:
    evidence = profiler.evaluate(case, built)
    if evidence is None:
        raise InfrastructureError("no_device", f"{case.name}: expected a profiler that measures")
    verdict = judge(case, built.build, evidence)
    if verdict.latency_ms is None or verdict.baseline_ms is None:
        raise InputError(
            f"{case.name}: expected a correct reference solution, found {verdict.outcome}: {verdict.message}"
        )
    return verdict.latency_ms, verdict.baseline_ms, evidence.measured_at


def lines(spreads: Sequence[Spread]) -> list[str]:
    """The spread as a table."""
    width = max(len(one.case) for one in spreads)
    head = f"{'case':{width}}  times  median ms  95% interval of the median  relative range  of the library"
    found = [head]
    for one in spreads:
        interval = median_interval(one.latencies_ms, median(one.latencies_ms))
        between = f"{interval.low:.4f} to {interval.high:.4f}" if interval else "needs 6 or more"
        baseline = (max(one.baselines_ms) - min(one.baselines_ms)) / median(one.baselines_ms)
        found.append(
            f"{one.case:{width}}  {len(one.latencies_ms):5}  {median(one.latencies_ms):9.4f}  {between:26}  "
            f"{one.relative_range:14.2%}  {baseline:14.2%}"
        )
    return found
