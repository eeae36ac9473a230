"""A checkout whose reference solutions build in a moment, with evidence made up for exactly what is built."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ptxbench.cases import Case, load_suite
from ptxbench.errors import InfrastructureError
from ptxbench.records import Candidate, Evidence, InstructionEvidence, KernelLaunch, RunEvidence, ToolStatus
from ptxbench.toolchain import Built, Toolchain
from tests.unit.agent.parts import FakeProfiler
from tests.unit.factories import (
    DEVICE,
    HGMMA,
    make_baseline,
    make_call,
    make_counts,
    make_evidence,
    make_instructions,
    make_run,
    make_timing,
    make_trial,
)

SOURCE = """\
// A kernel with one tensor core instruction. What it computes is of no interest: its evidence is made up.
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/tvm_ffi.h>

__global__ void small(float* out, uint64_t a, uint64_t b) {
  float d[4] = {0.f, 0.f, 0.f, 0.f};
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  small<<<1, 128>>>(static_cast<float*>(C.data_ptr()), 0, 0);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""

BROKEN = "this is not CUDA %s;\n"
"""A source that the compiler refuses; the placeholder makes it one of its own."""

SPAN_NS, BASELINE_NS = 8_000_000, 7_400_000
"""Slow enough to be plausible for every case; a speedup of 0.925."""


def evidence_of(case: Case, built: Built) -> Evidence:
    """Evidence that makes a build correct, executed, safe and 0.925x of the library."""
    build = built.build
    (kernel,) = build.kernels
    return make_evidence(
        case,
        candidate_sha256=build.candidate_sha256,
        so_sha256=build.so_sha256,
        cubin_sha256=build.cubin_sha256,
        run=_run(case, kernel),
        instructions=make_instructions(make_counts(HGMMA, kernel=kernel), kernels=(kernel,)),
    )


def _run(case: Case, kernel: str) -> RunEvidence:
    trials = [
        make_trial(
            seed=seed, checks=(make_call(case=case), make_call(23, case=case)), timing=make_timing(span_ns=SPAN_NS)
        )
        for seed in range(case.trials)
    ]
    launch = KernelLaunch(
        name=kernel, grid=(1, 1, 1), block=(128, 1, 1), dynamic_smem_bytes=0, registers=24, launches_per_call=1.0
    )
    baseline = make_baseline(
        library=case.baseline.library,
        call=case.baseline.call,
        span_ns=(BASELINE_NS,) * 150,
        drift_span_ns=(BASELINE_NS,) * 10,
        relative_rms=dict.fromkeys(case.output_shapes(), 0.002),
    )
    return make_run(trials=tuple(trials), launches=(launch,), baseline=baseline)


class ScriptedProfiler(FakeProfiler):
    """A GPU machine in one situation: ``b200``, ``no_permission``, or the kind of an infrastructure fault."""

    def __init__(self, script: str) -> None:
        super().__init__()
        self.script = script
        if script == "b200":
            self.device = DEVICE.model_copy(update={"name": "NVIDIA B200", "compute_capability": (10, 0)})

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        if self.script not in ("b200", "no_permission"):
            raise InfrastructureError(self.script, f"{case.name}: as scripted")
        evidence = evidence_of(case, built)
        not_run = InstructionEvidence(status=ToolStatus.NOT_RUN)
        return evidence.model_copy(update={"safety": (), "instructions": not_run})

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        return InstructionEvidence(status=ToolStatus.FAILED, tool="ncu", message="ERR_NVGPUCTRPERM: no permission")


def add_references(checkout: Path, root: Path) -> None:
    """Small solutions of every Hopper case, their floors and their evidence."""
    folder = checkout / "generated" / "reference" / "h100"
    folder.mkdir(parents=True)
    (folder / "reference.yaml").write_bytes((root / "generated" / "reference" / "h100" / "reference.yaml").read_bytes())
    toolchain = Toolchain.discover()
    for case in load_suite(root, "primary").cases("h100"):
        built = toolchain.build(Candidate(source=SOURCE), case.arch)
        assert built.so_path is not None, built.build.log
        (folder / case.name).mkdir()
        (folder / case.name / "kernel.cu").write_text(SOURCE)
        evidence = evidence_of(case, built).model_dump_json()
        (folder / case.name / "h200.evidence.json").write_text(evidence)


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """pytest in a process group of its own, which is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
