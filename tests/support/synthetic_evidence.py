"""Builds and evidence that nobody made: what the judge gives the outcome that was asked for."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from ptxbench.cases import Case
from ptxbench.records import (
    Build,
    BuildStatus,
    ClockSample,
    Cubin,
    Evidence,
    Finding,
    KernelSass,
    Outcome,
    RunEvidence,
    RunStatus,
    Timing,
)
from tests.unit import factories as make

HOPPER = {"HGMMA": 8, "UTMALDG": 2, "UTMASTG": 1, "FFMA": 40, "LDS": 33, "STS": 21, "MUFU": 12, "BAR": 9}
OLDER = {"HMMA": 64, "LDGSTS": 12, "FFMA": 55, "LDS": 70, "BAR": 12}


def synthetic_build(outcome: Outcome, sha256: str, dice: random.Random) -> Build:
    """A build that comes as far as the outcome; some of those that run lack the target's instructions."""
    if outcome is Outcome.SCREENED:
        finding = Finding(rule="library-header", message="includes cublas_v2.h", line=3, excerpt="#include")
        return make.unbuilt(BuildStatus.SCREENED, candidate_sha256=sha256, findings=(finding,))
    if outcome is Outcome.COMPILE_ERROR:
        log = f'kernel.cu({dice.randint(20, 400)}): error: identifier "smem_tile" is undefined\n'
        return make.unbuilt(BuildStatus.COMPILE_ERROR, candidate_sha256=sha256, log=log)
    opcodes = OLDER if dice.random() < 0.15 else HOPPER
    kernels = (KernelSass(kernel=make.KERNEL, opcodes=opcodes),)
    cubin = Cubin(sha256=_digest(sha256, "cubin"), size_bytes=41_000, arch="sm_90a", kernels=kernels)
    return make.make_build(candidate_sha256=sha256, so_sha256=_digest(sha256, "so"), cubins=(cubin,))


def synthetic_evidence(case: Case, outcome: Outcome, build: Build, speedup: float, dice: random.Random) -> Evidence:
    """Measurements of a build that runs."""
    floor = case.flops / (make.DEVICE.sm_count * 4096 * make.DEVICE.max_sm_clock_mhz * 1e6)
    baseline_ns = int(floor * 1.38e9)
    findings = ("Invalid __shared__ write of size 16 bytes",) if outcome is Outcome.MEMORY_ERROR else ()
    return make.make_evidence(
        case,
        candidate_sha256=build.candidate_sha256,
        so_sha256=build.so_sha256,
        cubin_sha256=build.cubin_sha256,
        run=_run(case, outcome, baseline_ns, int(baseline_ns / speedup), dice),
        instructions=make.make_instructions(
            make.make_counts(threads=dice.randrange(90_000_000, 200_000_000)),
            make.make_counts("UTMALDG.2D", dice.randrange(100_000, 400_000)),
            make.make_counts("FFMA", dice.randrange(10_000_000, 90_000_000)),
        ),
        safety=(make.make_safety("memcheck", *findings),),
    )


def _run(case: Case, outcome: Outcome, baseline_ns: int, span_ns: int, dice: random.Random) -> RunEvidence:
    quality = dict.fromkeys(case.output_shapes(), 0.002)
    baseline = make.make_baseline(
        library=case.baseline.library,
        call=case.baseline.call,
        span_ns=(baseline_ns,) * 30,
        drift_span_ns=(baseline_ns,) * 5,
        relative_rms=quality,
    )
    if outcome is Outcome.TIMEOUT:
        message = "a call did not end within 10 s"
        return make.make_run(status=RunStatus.TIMEOUT, stage="check", message=message, trials=(), baseline=baseline)
    if outcome is Outcome.RUNTIME_ERROR:
        status, message = RunStatus.RUNTIME_ERROR, "an illegal memory access was encountered"
        return make.make_run(
            status=status, stage="check", message=message, error_code=700, trials=(), baseline=baseline
        )
    names = list(case.output_shapes())
    changes: dict[str, Any] = {}
    if outcome is Outcome.NUMERICAL_ERROR:
        changes = {"mismatched": dice.randrange(1, 10**6), "rms_error": dice.uniform(0.02, 1.0)}
    if outcome is Outcome.WRONG_SHAPE_OR_DTYPE:
        changes = {"dtype": "float16"}
    outputs = tuple(make.make_comparison(case, name, **changes) for name in names)
    checks = (make.make_call(case=case, outputs=outputs), make.make_call(23, case=case, outputs=outputs))
    spans = [tuple(int(span_ns * dice.uniform(0.99, 1.01)) for _ in range(50)) for _ in range(3)]
    trials = tuple(
        make.make_trial(
            checks=checks,
            seed=number,
            clock=ClockSample(sm_mhz=1980 - 15 * dice.randrange(20)),
            timing=Timing(
                warmup=10,
                span_ns=span,
                wall_ns=tuple(one + make.OVERHEAD_NS for one in span),
                activities=(1,) * len(span),
            ),
        )
        for number, span in enumerate(spans)
    )
    return make.make_run(trials=trials, baseline=baseline)


def _digest(sha256: str, what: str) -> str:
    return hashlib.sha256(f"{sha256} {what}".encode()).hexdigest()
