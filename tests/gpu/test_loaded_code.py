"""What the driver tells of loaded code on a real device, and what the judge makes of it.

The record of each candidate goes to ``$PTXBENCH_EVIDENCE_DIR/loaded_code.json``: how images compare with the object's
on this driver is what no machine without a device can tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.records import Candidate, LoadedCode, Outcome, Verdict
from ptxbench.verdict import Rule, judge
from tests.fixtures import kernels
from tests.gpu.conftest import ROOT
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.local import LocalProfiler
    from ptxbench.toolchain import Toolchain

HERE = Path(__file__).parent
REFERENCES = ("gemm_n7168_k5120", "mha_with_lse_d128_causal", "mha_bwd_d128_causal")
RECORDS: dict[str, object] = {}


def source_of(name: str, **words: str) -> str:
    shared = (kernels.FOLDER / "generic_gemm.cuh").read_text().rstrip("\n")
    source = (HERE / "kernels" / f"{name}.cu").read_text().replace('#include "generic_gemm.cuh"', shared)
    for word, value in words.items():
        source = source.replace(word, value)
    return source


def measured(
    name: str, source: str, case: Case, profiler: LocalProfiler, toolchain: Toolchain
) -> tuple[LoadedCode, Verdict]:
    built = toolchain.build(Candidate(source=source), case.arch)
    assert built.so_path is not None, built.build.findings or built.build.log
    evidence = profiler.evaluate(case, built)
    assert evidence is not None
    verdict = judge(case, built.build, evidence)
    loaded = evidence.run.loaded
    RECORDS[name] = {
        "outcome": verdict.outcome.value,
        "rule": verdict.rule,
        "message": verdict.message,
        "cubins": [cubin.sha256 for cubin in built.build.cubins],
        "driver": evidence.device.driver,
        "loaded": None if loaded is None else loaded.model_dump(mode="json"),
    }
    keep_figures("loaded_code.json", RECORDS)
    assert loaded is not None, verdict.message
    return loaded, verdict


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_solution_loads_its_own_code_alone(
    name: str, cases: dict[str, Case], profiler: LocalProfiler, toolchain: Toolchain
) -> None:
    source = (ROOT / "generated/reference/h100" / name / "kernel.cu").read_text()
    loaded, verdict = measured(name, source, cases[name], profiler, toolchain)
    assert verdict.outcome is Outcome.CORRECT, verdict.message
    assert loaded.unknown == ""
    # The driver hands the image over as it lies in the object, or at least its machine code.
    assert [module.matched_by for module in loaded.modules if module.matched_by != "empty"]
    assert all(module.matched_by in ("bytes", "code", "empty") for module in loaded.modules), loaded.modules
    assert [library.path for library in loaded.libraries if not library.allowed] == []
    assert not loaded.hidden


def test_ptx_under_the_name_of_a_kernel_is_foreign(gemm: Case, profiler: LocalProfiler, toolchain: Toolchain) -> None:
    loaded, verdict = measured("loads_ptx", source_of("loads_ptx"), gemm, profiler, toolchain)
    foreign = [module for module in loaded.modules if not module.matched_by]
    assert [module.kernels for module in foreign] == [("_Z5extrav",)], loaded.modules
    assert any(module.from_candidate for module in loaded.modules)
    assert "cuModuleLoadData" in loaded.entry_points
    assert any(name.startswith("cuModuleLoadData") for name in loaded.load_calls)
    assert (verdict.outcome, verdict.rule, verdict.speedup) == (Outcome.SCREENED, Rule.SCREEN_FOREIGN_MODULE, None)


def test_a_context_of_its_own_is_told(gemm: Case, profiler: LocalProfiler, toolchain: Toolchain) -> None:
    """What works in it no call waits for. A reference solution, which makes none, has nothing unknown (above)."""
    loaded, verdict = measured("own_context", source_of("own_context"), gemm, profiler, toolchain)
    assert "a CUDA context was created" in loaded.unknown
    assert loaded.entry_points == ("cuCtxCreate",)
    assert (verdict.outcome, verdict.rule, verdict.speedup) == (Outcome.SCREENED, Rule.SCREEN_DRIVER_ENTRY_POINT, None)


def test_a_mapped_library_is_seen_from_outside(gemm: Case, profiler: LocalProfiler, toolchain: Toolchain) -> None:
    import torch

    library = next(Path(torch.__file__).parent.glob("lib/libtorch_c*.so")).resolve()
    loaded, verdict = measured(
        "maps_library", source_of("maps_library", LIBRARY=str(library)), gemm, profiler, toolchain
    )
    assert [found.path for found in loaded.libraries if not found.allowed] == [str(library)]
    assert (verdict.outcome, verdict.rule) == (Outcome.SCREENED, Rule.SCREEN_FOREIGN_LIBRARY)
    assert library.name in verdict.message


def test_an_honest_lookup_is_recorded_and_allowed(gemm: Case, profiler: LocalProfiler, toolchain: Toolchain) -> None:
    loaded, verdict = measured("looks_up_encoder", source_of("looks_up_encoder"), gemm, profiler, toolchain)
    assert loaded.entry_points == ("cuTensorMapEncodeTiled",)
    assert verdict.outcome is Outcome.CORRECT, verdict.message
    assert verdict.speedup is not None
