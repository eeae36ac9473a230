"""Blackwell's check programs: compiled without a warning, their instructions found. None is executed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pydantic import RootModel

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.toolchain.discovery import Tools, discover
from ptxbench.toolchain.headers import LIGHT_DIR

HERE = Path(__file__).parent / "compiled"
TEMPLATES = HERE.parents[3] / "knowledge_packs" / "b200" / "templates"
GENCODE = "arch=compute_100a,code=sm_100a"


class Expected(RootModel[dict[str, dict[str, tuple[str, ...]]]]):
    """Check program -> kernel -> instructions, modifiers included."""


EXPECTED = read_yaml(HERE / "expected.yaml").parse(Expected).root


@pytest.fixture(scope="module")
def tools() -> Tools:
    """The compiler and the disassembler of this machine."""
    return discover()


@pytest.fixture(scope="module")
def headers(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Include options: the templates, and the headers that candidates are built with."""
    return (f"-I{TEMPLATES}", "-isystem", str(LIGHT_DIR), "-isystem", str(tools.tvm_ffi.include_dir))


def compiled(tools: Tools, options: tuple[str, ...], source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """nvcc on one source: a cubin, or an object with both halves, as the suffix of ``target`` says."""
    kind = "-cubin" if target.suffix == ".cubin" else "-c"
    warnings = ("-Xcompiler", "-Wall,-Wextra", "-Xptxas", "-v,-warn-spills", "-Werror", "all-warnings")
    argv = (str(tools.compiler.nvcc), "-std=c++17", "-O3", *warnings, "-gencode", GENCODE, *options, kind)
    return subprocess.run((*argv, "-o", str(target), str(source)), capture_output=True, text=True, check=False)


def instructions(tools: Tools, cubin: Path) -> dict[str, list[str]]:
    """Kernel -> its instructions in order, with modifiers."""
    assert tools.disassembler is not None
    text = subprocess.run(
        (str(tools.disassembler.path), "-c", str(cubin)), capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, list[str]] = {}
    for part in re.split(r"^\.text\.", text, flags=re.MULTILINE)[1:]:
        mangled = part.partition(":")[0]
        name = re.match(r"_Z(\d+)(\w+)", mangled)
        key = name[2][: int(name[1])] if name else mangled
        found[key] = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([^\s;]+)", part, re.MULTILINE)
    return found


def test_every_program_and_every_kernel_has_an_expectation() -> None:
    assert sorted(path.name for path in HERE.glob("*.cu")) == sorted(EXPECTED)
    for name, kernels in EXPECTED.items():
        text = (HERE / name).read_text()
        for kernel in kernels:
            family = re.sub(r"_n\d+$|_pair$", "", kernel).removeprefix("check_")
            assert kernel in text or family in text


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_compiles_to_its_instructions(
    name: str, tools: Tools, headers: tuple[str, ...], tmp_path: Path
) -> None:
    if tools.disassembler is None:
        pytest.skip("no nvdisasm")
    cubin = tmp_path / "check.cubin"
    result = compiled(tools, headers, HERE / name, cubin)
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr.lower()
    found = instructions(tools, cubin)
    checks = {kernel for kernel in found if kernel.startswith("check_")}
    assert checks == set(EXPECTED[name])
    missing = {
        kernel: [word for word in words if word not in found[kernel] and not _begins(word, found[kernel])]
        for kernel, words in EXPECTED[name].items()
    }
    assert {kernel: words for kernel, words in missing.items() if words} == {}


def _begins(word: str, found: list[str]) -> bool:
    """Further modifiers count, but not those for a pair or for several blocks."""
    return any(
        instruction.startswith(f"{word}.") and not re.search(r"2CTA|MULTICAST", instruction.removeprefix(word))
        for instruction in found
    )


def test_the_host_half_compiles(tools: Tools, headers: tuple[str, ...], tmp_path: Path) -> None:
    result = compiled(tools, headers, HERE / "tma.cu", tmp_path / "tma.o")
    # What TVM-FFI's own export macro makes g++ say is not ours.
    of_macro = ("Werror=unused-parameter", "all warnings being treated as errors")
    ours = [
        line for line in result.stderr.splitlines() if "error" in line and not any(word in line for word in of_macro)
    ]
    assert ours == []


def test_single_and_pair_in_one_kernel_are_refused(tools: Tools, headers: tuple[str, ...], tmp_path: Path) -> None:
    source = tmp_path / "both.cu"
    source.write_text(
        '#include "mma.cuh"\n'
        "__global__ void both(uint32_t d, uint64_t a, uint32_t bar) {\n"
        "  mma_f16_ss<1>(d, a, a, instr_desc_bf16(128, 128), false);\n"
        "  mma_commit<2>(bar);\n}\n"
    )
    result = compiled(tools, headers, source, tmp_path / "both.cubin")
    assert result.returncode != 0
    assert "CTA pair granularity" in result.stderr


@pytest.mark.parametrize(
    ("condition", "elections"), [("warp_index() == 1 && elect_one()", 1), ("threadIdx.x == 32", 9)]
)
def test_issue_by_an_elected_thread_costs_no_election_for_each_instruction(
    condition: str, elections: int, tools: Tools, headers: tuple[str, ...], tmp_path: Path
) -> None:
    if tools.disassembler is None:
        pytest.skip("no nvdisasm")
    source = tmp_path / "issue.cu"
    source.write_text(
        '#include "mma.cuh"\n'
        "__global__ void issue(uint32_t d, uint32_t a, uint32_t bar) {\n"
        f"  if ({condition}) {{\n"
        "    for (int k = 0; k < 8; ++k)\n"
        "      mma_f16_ss(d, smem_desc_k_major(a) + 2 * k, smem_desc_k_major(a) + 2 * k, 0x8200490, k > 0);\n"
        "    mma_commit(bar);\n  }\n}\n"
    )
    cubin = tmp_path / "issue.cubin"
    result = compiled(tools, headers, source, cubin)
    assert result.returncode == 0, result.stderr
    found = instructions(tools, cubin)["issue"]
    assert sum(word.startswith("UTCHMMA") for word in found) == 8
    assert found.count("ELECT") == elections


def test_the_polynomial_of_exp2_is_as_exact_as_its_comment_says() -> None:
    body = re.search(r"float exp2_poly\(float x\) \{(.*?)\n\}", (TEMPLATES / "base.cuh").read_text(), re.DOTALL)
    assert body is not None
    cubic, square, linear, one = map(float, re.findall(r"([\d.]+)f(?=, f[,)]|\))", body[1].split("const float p =")[1]))
    assert one == 1.0
    # Below 2^-127 the exponent would wrap around; 1.5 * 2^23 leaves x's floor in the lowest bits of the sum.
    assert "x = fmaxf(x, -127.0f);" in body[1]
    assert body[1].count("12582912.0f") == 2
    errors = (abs((((cubic * f + square) * f + linear) * f + one) / 2**f - 1) for f in (i / 4096 for i in range(4097)))
    assert max(errors) < 8.7e-5
