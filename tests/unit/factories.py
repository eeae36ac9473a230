"""Small helpers that build records: a correct GEMM measured on an H200, and changes to it."""

import math
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ptxbench.cases import Case, load_suite
from ptxbench.records import (
    BaselineMeasurement,
    Build,
    BuildStatus,
    CheckedCall,
    Cubin,
    DeviceIdentity,
    Evidence,
    InstructionCount,
    InstructionEvidence,
    KernelLaunch,
    KernelSass,
    OutputComparison,
    RunEvidence,
    RunStatus,
    SafetyEvidence,
    SafetyFinding,
    Timing,
    ToolchainIdentity,
    ToolStatus,
    Trial,
    TurnKey,
    TurnRecord,
)
from ptxbench.verdict import judge

ROOT = Path(__file__).parents[2]
GEMM = "gemm_n7168_k5120"
KERNEL = "_Z4gemmPK13__nv_bfloat16S1_PS_iii"
HGMMA = "HGMMA.64x256x16.F32.BF16"
SPAN_NS = 800_000
OVERHEAD_NS = 110_000
BASELINE_NS = 740_000

TOOLCHAIN = ToolchainIdentity(
    nvcc="13.0.88",
    origin="pip",
    host_compiler="g++ 13.3.0",
    disassembler="nvdisasm 13.2.86",
    flags=("-O3",),
    tvm_ffi="0.1.15",
    headers="light",
)

DEVICE = DeviceIdentity(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    sm_count=132,
    l2_bytes=62_914_560,
    memory_bytes=150_000_000_000,
    max_sm_clock_mhz=1980,
    memory_bandwidth_bytes_per_s=4_800_000_000_000,
    driver="580.159",
    cuda_runtime="13.0",
)


def digest(letter: str) -> str:
    """A SHA-256 that is easy to tell from others."""
    return letter * 64


@cache
def suite_case(name: str = GEMM, arch: str = "h100") -> Case:
    """A case of the repository's primary suite."""
    return load_suite(ROOT, "primary").case(name, arch)


def make_build(opcodes: dict[str, int] | None = None, **changes: Any) -> Build:
    """A built object with one kernel that holds HGMMA, TMA loads and ordinary instructions."""
    opcodes = {"HGMMA": 8, "UTMALDG": 2, "FFMA": 40, "UTMACCTL": 1} if opcodes is None else opcodes
    kernels = (KernelSass(kernel=KERNEL, opcodes=opcodes),)
    values: dict[str, Any] = {
        "candidate_sha256": digest("a"),
        "arch": "h100",
        "status": BuildStatus.OK,
        "so_sha256": digest("b"),
        "cubins": (Cubin(sha256=digest("c"), size_bytes=4096, arch="sm_90a", kernels=kernels),),
        "toolchain": TOOLCHAIN,
    }
    return Build(**{**values, **changes})


def unbuilt(status: BuildStatus, **changes: Any) -> Build:
    """A build that left no object."""
    return make_build(status=status, so_sha256=None, cubins=(), **changes)


def make_comparison(case: Case | None = None, name: str = "C", **changes: Any) -> OutputComparison:
    """A comparison in which every element agrees."""
    case = case or suite_case()
    shape = case.output_shapes()[name]
    values: dict[str, Any] = {
        "name": name,
        "shape": shape,
        "dtype": case.definition.outputs[name].dtype.value,
        "elements": math.prod(shape),
        "atol": case.tolerance.atol,
        "rtol": case.tolerance.rtol,
        "mismatched": 0,
        "nan": 0,
        "max_abs_error": 0.004,
        "max_rel_error": 0.01,
        "rms_error": 0.002,
        "rms_reference": 1.0,
    }
    return OutputComparison(**{**values, **changes})


def make_call(iteration: int = -1, *, case: Case | None = None, **changes: Any) -> CheckedCall:
    """A checked call whose outputs all agree."""
    case = case or suite_case()
    outputs = tuple(make_comparison(case, name) for name in case.output_shapes())
    values: dict[str, Any] = {
        "iteration": iteration,
        "outputs": outputs,
        "inputs_intact": True,
        "guards_intact": True,
    }
    return CheckedCall(**{**values, **changes})


def make_timing(span_ns: int = SPAN_NS, excess_ns: int = 0, *, count: int = 50, **changes: Any) -> Timing:
    """A trial's timing: equal spans; the oracle's clock sees the hand-over and ``excess_ns`` more."""
    values: dict[str, Any] = {
        "warmup": 10,
        "span_ns": (span_ns,) * count,
        "wall_ns": (span_ns + OVERHEAD_NS + excess_ns,) * count,
        "activities": (1,) * count,
    }
    return Timing(**{**values, **changes})


def make_trial(**changes: Any) -> Trial:
    """A trial with a correct correctness call, one correct checked call of the timed loop, and timings."""
    values: dict[str, Any] = {
        "seed": 7,
        "family": "normal",
        "checks": (make_call(), make_call(23)),
        "guards_intact": True,
        "timing": make_timing(),
    }
    return Trial(**{**values, **changes})


def make_baseline(**changes: Any) -> BaselineMeasurement:
    """cuBLAS, undisturbed."""
    values: dict[str, Any] = {
        "library": "cublas",
        "version": "13.1.0",
        "call": "torch.matmul",
        "span_ns": (BASELINE_NS,) * 150,
        "drift_span_ns": (BASELINE_NS,) * 10,
        "overhead_ns": OVERHEAD_NS,
        "relative_rms": {"C": 0.002},
    }
    return BaselineMeasurement(**{**values, **changes})


def make_run(**changes: Any) -> RunEvidence:
    """Three good trials beside the baseline."""
    launch = KernelLaunch(
        name=KERNEL,
        grid=(132, 1, 1),
        block=(384, 1, 1),
        dynamic_smem_bytes=196_608,
        registers=168,
        launches_per_call=1.0,
    )
    values: dict[str, Any] = {
        "status": RunStatus.COMPLETED,
        "trials": (make_trial(), make_trial(seed=8), make_trial(seed=9)),
        "launches": (launch,),
        "baseline": make_baseline(),
    }
    return RunEvidence(**{**values, **changes})


def make_counts(opcode: str = HGMMA, threads: int = 32_000, kernel: str = KERNEL) -> InstructionCount:
    """Counts of one opcode with all lanes enabled."""
    return InstructionCount(
        kernel=kernel, opcode=opcode, inst_executed=max(threads // 32, 1), thread_inst_executed_true=threads
    )


def make_instructions(*counts: InstructionCount, **changes: Any) -> InstructionEvidence:
    """Counts of one call under the instruction profiler."""
    values: dict[str, Any] = {
        "status": ToolStatus.OK,
        "tool": "ncu 2025.3.1",
        "counts": counts or (make_counts(),),
        "kernels": (KERNEL,),
        "outputs_match": True,
    }
    return InstructionEvidence(**{**values, **changes})


def make_safety(
    tool: Literal["memcheck", "initcheck", "synccheck", "racecheck"] = "memcheck", *messages: str, **changes: Any
) -> SafetyEvidence:
    """A sanitizer run with one finding per message."""
    findings = tuple(
        SafetyFinding(kind="InvalidWrite", message=message, kernel="gemm", location="kernel.cu:41")
        for message in messages
    )
    values: dict[str, Any] = {"tool": tool, "status": ToolStatus.OK, "findings": findings}
    return SafetyEvidence(**{**values, "finding_count": len(findings), **changes})


def make_evidence(case: Case | None = None, **changes: Any) -> Evidence:
    """Evidence of ``make_build()`` that makes it correct, executed, safe and 0.925x of the library."""
    case = case or suite_case()
    values: dict[str, Any] = {
        "definition": case.definition.name,
        "workload_uuid": case.workload.uuid,
        "arch": case.arch.name,
        "candidate_sha256": digest("a"),
        "so_sha256": digest("b"),
        "cubin_sha256": digest("c"),
        "harness": "0.1.0",
        "measured_at": "2026-11-29T16:00:00Z",
        "device": DEVICE,
        "run": make_run(),
        "instructions": make_instructions(),
        "safety": (make_safety(),),
    }
    return Evidence(**{**values, **changes})


def make_record(
    turn: int = 0, *, model: str = "reference", case: Case | None = None, trajectory: int = 0, **changes: Any
) -> TurnRecord:
    """A turn of a correct candidate; ``build``, ``evidence`` and ``verdict`` can be replaced."""
    case = case or suite_case()
    of: dict[str, Any] = {"candidate_sha256": changes.get("source_sha256") or digest("a")}
    build = changes.pop("build", make_build(**of))
    evidence = changes.pop("evidence", make_evidence(case, **of))
    key = TurnKey(model=model, case=case.name, arch=case.arch.name, variant=0, trajectory=trajectory, turn=turn)
    values: dict[str, Any] = {
        "key": key,
        "definition": case.definition.name,
        "workload_uuid": case.workload.uuid,
        "variant_name": case.variants[0],
        "origin": "reference",
        "source_sha256": digest("a"),
        "build": build,
        "evidence": evidence,
        "evidence_origin": "none" if evidence is None else "measured",
    }
    if "verdict" not in changes:
        values["verdict"] = judge(case, build, evidence)
    return TurnRecord(**{**values, **changes})
