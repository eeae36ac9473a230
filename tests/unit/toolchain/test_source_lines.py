"""From a place in the device code to the candidate's line, with the real compiler."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Candidate, Evidence
from ptxbench.toolchain import Built, Toolchain
from ptxbench.toolchain.source_lines import (
    KernelLines,
    LineTable,
    SourceLines,
    lines_of,
    read_line_table,
    with_line_info,
)
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.unit.toolchain.parts import HOPPER, MINIMAL, replace_step, write_tool

DIGEST = "a" * 64
DISASSEMBLY = """\
	.target	sm_90a
.text._Z1kPf:
	//## File "/build/kernel.cu", line 12
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ULDC.64 UR4, c[0x0][0x208] ;
	//## File "/build/kernel.cu", line 3 inlined at "/build/kernel.cu", line 13
	//## File "/build/kernel.cu", line 13
        /*0020*/                   STG.E.128 desc[UR4][R2.64], R8 ;
	//## File "/opt/include/cuda_bf16.hpp", line 900 inlined at "/build/kernel.cu", line 14
	//## File "/build/kernel.cu", line 14
        /*0030*/              @!P0 FADD R1, R2, R3 ;
	//## File "/opt/include/cuda_bf16.hpp", line 901
        /*0040*/                   EXIT ;
.L_x_0:
        /*0050*/                   BRA `(.L_x_0);
.text._Z1mPf:
	//## File "/build/kernel.cu", line 20
        /*0000*/                   EXIT ;
"""


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    return Candidate(source=load("oob_write"))


@pytest.fixture(scope="module")
def built(toolchain: Toolchain, candidate: Candidate) -> Built:
    return toolchain.build(candidate, HOPPER)


def test_chains_are_read_innermost_first_without_headers() -> None:
    lines = SourceLines(read_line_table(DISASSEMBLY, {"_Z1kPf": DIGEST, "_Z1mPf": DIGEST}))
    found = {offset: lines.at("_Z1kPf", offset) for offset in (0x0, 0x10, 0x18, 0x20, 0x30, 0x40, 0x50)}
    assert found == {0x0: (12,), 0x10: (12,), 0x18: (12,), 0x20: (3, 13), 0x30: (14,), 0x40: (), 0x50: ()}
    assert lines.at("_Z1mPf", 0) == (20,)
    assert lines.at("_Z1xPf", 0) == ()


def test_only_kernels_whose_code_is_known_are_kept() -> None:
    assert set(read_line_table(DISASSEMBLY, {"_Z1mPf": DIGEST}).kernels) == {"_Z1mPf"}


@given(st.text(max_size=300) | st.lists(st.sampled_from(DISASSEMBLY.splitlines())).map("\n".join))
def test_any_text_is_read(text: str) -> None:
    table = read_line_table(text, {"_Z1kPf": DIGEST})
    for lines in table.kernels.values():
        assert len(lines.starts) == len(lines.lines)


def test_a_place_before_the_first_start_is_unknown() -> None:
    lines = KernelLines(code_sha256=DIGEST, starts=(16,), lines=((3,),))
    found = SourceLines(LineTable(kernels={"k": lines}))
    assert (found.at("k", 0), found.at("k", 16)) == ((), (3,))


def test_the_finding_of_a_real_sanitizer_gets_the_line_of_the_store(
    toolchain: Toolchain, candidate: Candidate, built: Built
) -> None:
    evidence = Evidence.model_validate_json((ROOT / "tests/evidence/oob_write.evidence.json").read_bytes())
    assert evidence.cubin_sha256 == built.build.cubin_sha256
    offset = re.search(r"\+0x([0-9a-f]+)", evidence.safety[0].findings[0].message)
    assert offset is not None
    lines = toolchain.source_lines(candidate, HOPPER, built)
    assert lines is not None
    (number,) = lines.at("_Z14write_past_endP13__nv_bfloat16i", int(offset[1], 16))
    assert "make_uint4(kPair, kPair, kPair, kPair)" in candidate.source.splitlines()[number - 1]


def test_inlined_code_has_the_lines_of_its_callers(toolchain: Toolchain) -> None:
    candidate = Candidate(source=(ROOT / "generated/reference/h100/gemm_n7168_k5120/kernel.cu").read_text())
    lines = toolchain.source_lines(candidate, HOPPER, toolchain.build(candidate, HOPPER))
    assert lines is not None
    ((_, kernel),) = lines.table.kernels.items()
    source = candidate.source.splitlines()
    loads = next(
        number for number, text in enumerate(source, 1) if text.startswith("__device__") and "tma_load" in text
    )
    chain = max((chain for chain in kernel.lines if chain and chain[0] >= loads), key=len)
    assert len(chain) >= 2
    assert chain[-1] > chain[0]


def test_the_second_build_is_cached(
    toolchain: Toolchain, candidate: Candidate, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = toolchain.source_lines(candidate, HOPPER, built)
    monkeypatch.setattr("ptxbench.toolchain.toolchain.write_line_table", lambda *_: pytest.fail("built again"))
    assert toolchain.source_lines(candidate, HOPPER, built) == first


def test_other_code_has_no_lines(toolchain: Toolchain, candidate: Candidate, built: Built, tmp_path: Path) -> None:
    lines = toolchain.source_lines(candidate, HOPPER, built)
    assert lines is not None
    table = lines.table.kernels
    gemm = "_Z4gemmPK13__nv_bfloat16S1_PS_i"
    changed = {**table, gemm: table[gemm].model_copy(update={"code_sha256": DIGEST})}
    path = tmp_path / "lines.json"
    path.write_text(LineTable(kernels=changed).model_dump_json())
    assert built.so_path is not None
    found = lines_of(path, built.so_path)
    assert found is not None
    assert set(found.table.kernels) == set(table) - {gemm}


def test_what_cannot_be_read_has_no_lines(built: Built, tmp_path: Path) -> None:
    assert built.so_path is not None
    assert lines_of(tmp_path / "absent", built.so_path) is None
    (tmp_path / "lines.json").write_text("{}")
    assert lines_of(tmp_path / "lines.json", built.so_path) is None
    (tmp_path / "lines.json").write_text('{"kernels": {}}')
    assert lines_of(tmp_path / "lines.json", tmp_path / "lines.json") is None


def test_without_an_object_there_are_no_lines(toolchain: Toolchain, candidate: Candidate, built: Built) -> None:
    assert toolchain.source_lines(candidate, HOPPER, built._replace(so_path=None)) is None


def test_a_second_build_that_fails_gives_no_lines(toolchain: Toolchain, tmp_path: Path) -> None:
    other = Toolchain(toolchain.tools, toolchain._cache)
    candidate = Candidate(source=MINIMAL + "// for a broken assembler\n")
    built = other.build(candidate, HOPPER)
    replace_step(other, "assemble", write_tool(tmp_path / "bin/ptxas", "exit 1"))
    assert other.source_lines(candidate, HOPPER, built) is None


def test_a_candidate_without_kernels_has_an_empty_table(toolchain: Toolchain) -> None:
    candidate = Candidate(source=MINIMAL + "// without a kernel\n")
    lines = toolchain.source_lines(candidate, HOPPER, toolchain.build(candidate, HOPPER))
    assert lines is not None
    assert lines.table.kernels == {}


def test_the_plan_gets_the_flags_of_nvcc(toolchain: Toolchain) -> None:
    plan = toolchain._plan(HOPPER.gencode, "light")
    changed = with_line_info(plan)
    assert set(changed.device_front) - set(plan.device_front) == {"-generate-line-info"}
    assert set(changed.assemble) - set(plan.assemble) == {"--generate-line-info"}
    assert changed.device_preprocess == plan.device_preprocess
