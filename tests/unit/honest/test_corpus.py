"""The corpus of honest kernels: complete, and without a finding of the screen.

Preprocessing every source with all of CUDA's headers takes half a minute. Here each source is preprocessed with the
macros of the headers and empty stand-ins for the files, which leaves of its own text what the build leaves of it; the
headers themselves are screened once, together. `ptxbench selftest` builds and runs the whole corpus.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from ptxbench.cases import load_suite
from ptxbench.cases.arch import Arch
from ptxbench.records import Build, BuildStatus, Candidate, Outcome, Target, Verdict
from ptxbench.records.verdict import Safe
from ptxbench.toolchain import Toolchain, headers
from ptxbench.toolchain.plan import CompilePlan, compiler_environ, read_plan
from ptxbench.toolchain.screen import HeaderFolders, screen_source, screen_translation
from ptxbench.toolchain.translation import FORCED_HEADER, SOURCE_NAME, read_translation
from tests.support.corpus import HONEST, ROOT, Honest, honest, read_source

CORPUS = honest()
SUITE = load_suite(ROOT, "primary")
# A compilation takes seconds: those whose object has what others have not (a driver function by name, a launch through
# the driver, host functions by processor, graphs). The whole corpus is compiled by `ptxbench selftest`.
COMPILED = (
    "attention/causal_backward_graph",
    "host/cpu_dispatch",
    "launch/driver_launch",
    "launch/entry_point_by_name",
)

_SYSTEM_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>\n]+)>", re.MULTILINE)
_RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
_INACTIVE = re.compile(r"^#if(?: 0|def COMPARE_WITH_CUBLAS)$.*?^#endif$", re.MULTILINE | re.DOTALL)


def arch_of(case: str) -> Arch:
    return SUITE.case(case, "h100").arch


@pytest.fixture(scope="session")
def toolchain(build_cache: Path) -> Toolchain:
    return Toolchain.discover(build_cache)


def included(source: str) -> set[str]:
    """Headers that a source includes from outside, whatever stands in its raw strings and disabled parts."""
    return set(_SYSTEM_INCLUDE.findall(_INACTIVE.sub("", _RAW_STRING.sub("", source))))


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {name: read_source(name, HONEST) for name in CORPUS}


@pytest.fixture(scope="module")
def all_headers(sources: dict[str, str]) -> str:
    """A source that includes every header of the corpus."""
    return "".join(f"#include <{name}>\n" for name in sorted(set().union(*map(included, sources.values()))))


class Preprocessor(NamedTuple):
    """Both halves' commands with the macros of the headers in place of the headers."""

    halves: dict[str, tuple[str, ...]]
    stand_ins: Path

    def text(self, half: str, folder: Path) -> str:
        argv = (*self.halves[half], str(folder / SOURCE_NAME), "-o", "-")
        return subprocess.run(argv, env=compiler_environ(), check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def preprocessor(toolchain: Toolchain, all_headers: str, tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    folder = tmp_path_factory.mktemp("macros")
    stand_ins = folder / "stand-ins"
    for name in (FORCED_HEADER, *_SYSTEM_INCLUDE.findall(all_headers)):
        (stand_ins / name).parent.mkdir(parents=True, exist_ok=True)
        (stand_ins / name).touch()
    headers.link_headers(folder, toolchain.tools.tvm_ffi.include_dir)
    (folder / SOURCE_NAME).write_text(all_headers)
    tools, include_dirs = toolchain.tools, headers.include_dirs("light")
    plan = read_plan(
        tools.compiler.nvcc, tools.host.path, SUITE.case("gemm_n7168_k5120", "h100").arch.gencode, include_dirs
    )
    halves = {half: _with_macros(plan, half, folder, stand_ins) for half in ("host_preprocess", "device_preprocess")}
    return Preprocessor(halves, stand_ins)


def _with_macros(plan: CompilePlan, half: str, folder: Path, stand_ins: Path) -> tuple[str, ...]:
    command = getattr(plan, half)
    macros, output = folder / f"{half}.h", command.index("-o")
    subprocess.run((*command[:output], "-dM", "-o", str(macros)), cwd=folder, env=compiler_environ(), check=True)
    # The compiler's own macros are in the dump as well; defining them again warns.
    kept = [argument for argument in command[:output] if argument != SOURCE_NAME]
    return (kept[0], "-nostdinc", "-w", f"-I{stand_ins}", "-imacros", str(macros), *_without_folders(kept[1:]))


def _without_folders(arguments: list[str]) -> list[str]:
    pairs = zip(["", *arguments[:-1]], arguments, strict=True)
    return [word for before, word in pairs if not word.startswith(("-I", "-isystem")) and before != "-isystem"]


def test_the_corpus_is_as_large_and_as_wide_as_it_must_be():
    assert len(CORPUS) >= 60
    assert sum(entry.case != "gemm_n7168_k5120" for entry in CORPUS.values()) >= 8
    assert {entry.case for entry in CORPUS.values()} == {case.name for case in SUITE.table}
    assert all(entry.features for entry in CORPUS.values())


def test_no_two_kernels_are_the_same(sources: dict[str, str]):
    assert len(set(sources.values())) == len(sources)


@pytest.mark.parametrize("name", ["hopper_ptx", "attention_forward", "backward_ptx", "attention_backward"])
def test_shared_device_code_is_the_reference_solutions_to_the_letter(name: str):
    # Nothing here runs a kernel: that their numbers are right rests on the evidence of the reference solutions.
    measured = "".join(path.read_text() for path in (ROOT / "generated/reference/h100").glob("*/kernel.cu"))
    paragraphs = (HONEST / "include" / f"{name}.cuh").read_text().split("\n\n")
    device = [paragraph.strip() for paragraph in paragraphs if re.search("__device__|__global__", paragraph)]
    assert len(device) >= 3
    assert [paragraph for paragraph in device if paragraph not in measured] == []


@pytest.mark.parametrize("name", CORPUS)
def test_a_source_stands_alone_and_begins_with_what_it_is(name: str, sources: dict[str, str]):
    assert sources[name].startswith("// ")
    assert not re.search(r'^#include "', sources[name], re.MULTILINE)
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, " in sources[name]
    # Var axes come from the arguments: nothing but the tables of one source may know the workload's 8192 rows.
    assert name == "text/long_file" or "8192" not in sources[name].replace("p.m >= 8192", "")


def test_no_source_has_a_finding(sources: dict[str, str], preprocessor: Preprocessor, tmp_path: Path):
    def findings(name: str) -> dict[str, list[str]]:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / SOURCE_NAME).write_bytes(sources[name].encode())
        folders = HeaderFolders(folder, [preprocessor.stand_ins])
        found = [*screen_source(sources[name])]
        for half in preprocessor.halves:
            translation = read_translation(preprocessor.text(half, folder))
            assert len(translation.tokens) > 1000, f"{name}: the source's text is missing"
            found += screen_translation(translation, folders, sources[name])
        return {name: [f"{finding.rule} in line {finding.line}: {finding.message}" for finding in found]}

    with ThreadPoolExecutor(2) as pool:
        rejected = {name: found for result in pool.map(findings, sources) for name, found in result.items() if found}
    assert rejected == {}


def test_the_short_way_finds_what_the_build_finds(preprocessor: Preprocessor, tmp_path: Path):
    lines = [
        "#define CONCAT(a, b) a##b",
        "void* f() { return CONCAT(dl, open)(0, 1); }",
        "int g() { TVM_FFI_THROW(Error); }",
    ]
    source = "\n".join(lines)
    (tmp_path / SOURCE_NAME).write_text(source)
    for half in preprocessor.halves:
        translation = read_translation(preprocessor.text(half, tmp_path))
        found = screen_translation(translation, HeaderFolders(tmp_path, []), source)
        assert [(finding.rule, finding.line) for finding in found] == [("dynamic-loading", 2)]
        assert "TVM_FFI_THROW" not in {token.text for token in translation.tokens}, "macros of headers are expanded"


def test_no_header_of_the_corpus_has_a_finding(toolchain: Toolchain, all_headers: str):
    # Findings win over errors, and the error saves what would come after the screen.
    source = f"{all_headers}#error behind the headers\n"
    built = toolchain.build(Candidate(source=source), arch_of("gemm_n7168_k5120")).build
    assert (built.status, built.findings) == (BuildStatus.COMPILE_ERROR, ())
    assert re.findall(r"error: (.*)", built.log) == ["#error behind the headers"], built.log


def build(toolchain: Toolchain, name: str) -> Build:
    return toolchain.build(
        Candidate(source=read_source(name, HONEST)), SUITE.case(CORPUS[name].case, "h100").arch
    ).build


@pytest.mark.parametrize("name", COMPILED)
def test_a_kernel_compiles_with_the_instructions_that_it_promises(toolchain: Toolchain, name: str):
    built, arch = build(toolchain, name), arch_of(CORPUS[name].case)
    assert (built.status, built.findings) == (BuildStatus.OK, ()), built.log
    if built.inspection == "ok":
        opcodes = {opcode for cubin in built.cubins for kernel in cubin.kernels for opcode in kernel.opcodes}
        assert any(arch.selects(opcode) for opcode in opcodes) == (CORPUS[name].target == "executed")
    assert "wgmma" not in built.log, "ptxas serialized the products"


def make_verdict(**changes: object) -> Verdict:
    values: dict[str, object] = {
        "outcome": Outcome.CORRECT,
        "rule": "check.passed",
        "message": "",
        "safe": Safe.YES,
        "speedup": 1.0,
        "target": Target.EXECUTED,
        "target_rule": "target.executed",
        "target_message": "",
    }
    return Verdict.model_validate(values | changes)


@pytest.mark.parametrize(
    ("target", "verdict", "told"),
    [
        ("executed", make_verdict(), []),
        ("not_executed", make_verdict(), ["target executed, expected not_executed"]),
        ("any", make_verdict(target=Target.UNKNOWN), []),
        ("any", make_verdict(speedup=None, flags=("implausible",)), ["no speedup, flags ['implausible']"]),
        ("executed", make_verdict(outcome=Outcome.SCREENED, speedup=None), ["outcome screened"]),
        ("any", make_verdict(safe=Safe.NO), ["unsafe"]),
    ],
)
def test_a_rejection_is_told(target: str, verdict: Verdict, told: list[str]):
    entry = Honest(looks_like="x", target=target, name="x/y")
    differences = entry.differences(verdict)
    assert len(differences) == len(told)
    assert all(found.startswith(text) for found, text in zip(differences, told, strict=True))
