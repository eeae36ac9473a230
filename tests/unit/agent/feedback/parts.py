"""Turns made of the evidence that was measured on an H200, without building anything."""

from pathlib import Path
from typing import Any

from ptxbench.agent.feedback import feedback
from ptxbench.cases import Case
from ptxbench.models import PastTurn
from ptxbench.records import Build, Cubin, Evidence, KernelResources, KernelSass, TurnRecord
from ptxbench.verdict import judge
from tests.fixtures.kernels import load
from tests.unit.factories import ROOT, make_build, make_record, suite_case

GEMM_KERNEL = "_Z4gemmPK13__nv_bfloat16S1_PS_i"
KERNELS = {
    "oob_write": ("_Z14write_past_endP13__nv_bfloat16i", GEMM_KERNEL),
    "oob_read": ("_Z13read_past_endPK13__nv_bfloat16i", GEMM_KERNEL),
    "use_after_free": ("_Z9incrementPi", GEMM_KERNEL),
    "endless": ("_Z13wait_for_everv",),
    "illegal_address": ("_Z5storePVi",),
    "stale_output": ("_Z10do_nothingv", GEMM_KERNEL),
    "exits": (),
    "host_crash": (),
    "throws": (),
}


def stored_evidence(name: str) -> Evidence:
    """What was measured of a fixture."""
    return Evidence.model_validate_json((ROOT / f"tests/evidence/{name}.evidence.json").read_bytes())


def build_for(
    evidence: Evidence, kernels: tuple[str, ...], opcodes: dict[str, int] | None = None, **changes: Any
) -> Build:
    """A build whose hashes are those of the evidence."""
    held = {"FFMA": 8, "HMMA": 4, "EXIT": 1} if opcodes is None else opcodes
    sass = tuple(KernelSass(kernel=name, opcodes=held) for name in kernels)
    cubins = (Cubin(sha256=evidence.cubin_sha256, size_bytes=4096, arch="sm_90a", kernels=sass),) if kernels else ()
    resources = tuple(
        KernelResources(
            kernel=name,
            registers=208,
            stack_bytes=0,
            spill_store_bytes=0,
            spill_load_bytes=0,
            static_smem_bytes=0,
            barriers=1,
        )
        for name in kernels
    )
    values: dict[str, Any] = {
        "candidate_sha256": evidence.candidate_sha256,
        "so_sha256": evidence.so_sha256,
        "cubins": cubins,
        "resources": resources,
    }
    return make_build(**{**values, **changes})


def stored_turn(name: str, *, evidence: Evidence | None = None, case: Case | None = None, **build: Any) -> PastTurn:
    """The judged turn of a fixture; ``build`` changes its build."""
    case = case or suite_case()
    evidence = evidence or stored_evidence(name)
    kernels = KERNELS.get(name, tuple(launch.name for launch in evidence.run.launches) or (GEMM_KERNEL,))
    built = build_for(evidence, kernels, **build)
    record = make_record(case=case, build=built, evidence=evidence, verdict=judge(case, built, evidence))
    return PastTurn(record, load(name))


def text_of(past: PastTurn, *, case: Case | None = None, turns_left: int = 5) -> str:
    """The feedback without a toolchain."""
    return feedback(case or suite_case(), past, turns_left=turns_left, toolchain=None)


def with_record(past: PastTurn, **changes: Any) -> PastTurn:
    """The turn with another record."""
    record: TurnRecord = past.record.model_copy(update=changes)
    return past._replace(record=record)


def reference_source(name: str) -> str:
    """A hand-written solution."""
    return Path(ROOT, "generated/reference/h100", name, "kernel.cu").read_text()
