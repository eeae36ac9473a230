"""Validation of the knowledge packs (docs/packs.md): compiled and disassembled everywhere, executed on Hopper.

``python -m pytest ptx_tests/test_packs.py``. With ``PTXBENCH_EVIDENCE_DIR=DIR`` what ran on a device is written to
``DIR/packs_<arch>.json``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from ptx_tests.packs import blocks, device, harness, programs
from tests.unit.toolchain.parts import shared_cache

from ptxbench.packs import lint
from ptxbench.packs.pack import PackFolder, open_pack, pack_names
from ptxbench.packs.validation import COMPILED, NO_INSTRUCTION, Claim, load_claims
from ptxbench.toolchain import Toolchain

ROOT = Path(__file__).parents[1]
ARCHS = tuple(arch for arch in pack_names(ROOT) if not open_pack(ROOT, arch).file.interim)
CLAIMS = {arch: load_claims(ROOT / "knowledge_packs" / arch) for arch in ARCHS}

ON_HOST = "host"
"""The program whose checks need no device."""

DEVICE_FUNCTIONS = [
    pytest.param(arch, name, id=f"{arch}-{name}")
    for arch in ARCHS
    for name, claim in CLAIMS[arch].items()
    if not claim.host
]
CHECKS = [
    pytest.param(*(arch, program, name), id=f"{arch}-{name}", marks=[] if program == ON_HOST else [pytest.mark.gpu])
    for arch in ARCHS
    for program in programs.programs(arch)
    for name in programs.checks(arch, program)
]


class Pack(NamedTuple):
    """A pack and what the compiler made of its functions."""

    opened: PackFolder
    templates: str
    claims: Mapping[str, Claim]
    compiled: harness.Compiled


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    cache = os.environ.get("PTXBENCH_CACHE")
    return Toolchain.discover(Path(cache) if cache else shared_cache(tmp_path_factory))


@pytest.fixture(scope="session")
def packs(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pack]:
    found = {}
    for arch in ARCHS:
        opened, claims = open_pack(ROOT, arch), CLAIMS[arch]
        templates = harness.one_file(opened)
        folder = tmp_path_factory.mktemp(arch)
        source = templates + harness.uses(claims) + harness.EXPORT
        compiled = harness.compile_source(source, opened.arch.gencode, toolchain.tools, folder)
        found[arch] = Pack(opened, templates, claims, compiled)
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_lint(arch: str) -> None:
    assert [str(found) for found in lint(ROOT, arch)] == []


@pytest.mark.parametrize("arch", ARCHS)
def test_all_functions_compile_without_a_warning(packs: dict[str, Pack], arch: str) -> None:
    compiled = packs[arch].compiled
    assert compiled.returncode == 0, compiled.output
    assert harness.warnings(compiled.output) == []


@pytest.mark.parametrize(("arch", "name"), DEVICE_FUNCTIONS)
def test_a_function_becomes_the_instructions_that_its_claim_names(packs: dict[str, Pack], arch: str, name: str) -> None:
    pack, claim = packs[arch], CLAIMS[arch][name]
    if not pack.compiled.sass:
        pytest.skip("needs nvdisasm")
    ptx, sass = pack.compiled.ptx[f"use_{name}"], pack.compiled.sass[f"use_{name}"]
    wanted = [mnemonic for mnemonic in claim.ptx if mnemonic != NO_INSTRUCTION]
    assert [mnemonic for mnemonic in wanted if not harness.holds_ptx(ptx, mnemonic)] == []
    wanted = [mnemonic for mnemonic in claim.sass if mnemonic != NO_INSTRUCTION]
    assert [mnemonic for mnemonic in wanted if not harness.holds(sass, mnemonic)] == [], sass


@pytest.mark.parametrize(("arch", "name"), DEVICE_FUNCTIONS)
def test_no_memory_access_moves_across_a_function_that_orders(packs: dict[str, Pack], arch: str, name: str) -> None:
    if not packs[arch].compiled.ptx:
        pytest.skip("needs nvdisasm")
    if CLAIMS[arch][name].pure:
        return
    compiled, kernel = packs[arch].compiled, f"use_{name}"
    assert harness.shared_loads(compiled.ptx[kernel]) >= 2, "both loads became one in the PTX"
    if harness.waits(compiled.sass[kernel]):
        assert harness.shared_loads(compiled.sass[kernel]) >= 2, "the assembler merged both loads"


@pytest.mark.parametrize("arch", ARCHS)
def test_code_in_prose_compiles(packs: dict[str, Pack], toolchain: Toolchain, tmp_path: Path, arch: str) -> None:
    pack = packs[arch]
    source = pack.templates + blocks.as_source(pack.opened) + harness.EXPORT
    compiled = harness.compile_source(source, pack.opened.arch.gencode, toolchain.tools, tmp_path)
    assert compiled.returncode == 0, compiled.output
    assert [line for line in harness.warnings(compiled.output) if not re.search(blocks.UNUSED, line)] == []


@pytest.mark.parametrize("arch", ARCHS)
def test_every_check_that_a_claim_names_exists(arch: str) -> None:
    known = {name for program in programs.programs(arch) for name in programs.checks(arch, program)}
    named = {claim.check for claim in CLAIMS[arch].values()} - {COMPILED}
    assert named <= known


class Results:
    """Outcomes of the checks; a program is built and run once, when one of its checks is asked for."""

    def __init__(self, packs: dict[str, Pack], toolchain: Toolchain) -> None:
        self._packs = packs
        self._toolchain = toolchain
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2))
        self._built: dict[tuple[str, str], Future[Path]] = {}
        self.outcomes: dict[tuple[str, str], dict[str, programs.Outcome]] = {}

    def build(self, names: list[tuple[str, str]]) -> None:
        """Start building programs, so that none waits for another."""
        for arch, program in names:
            if (arch, program) not in self._built:
                pack = self._packs[arch]
                self._built[arch, program] = self._pool.submit(
                    programs.build, self._toolchain, pack.opened, program, pack.templates
                )

    def so_path(self, arch: str, program: str) -> Path:
        """A program, built. Raises AssertionError with the compiler's output."""
        self.build([(arch, program)])
        return self._built[arch, program].result()

    def of(self, arch: str, program: str) -> dict[str, programs.Outcome]:
        """Outcomes of a program's checks. Raises AssertionError where it does not build."""
        if (arch, program) not in self.outcomes:
            so_path = self.so_path(arch, program)
            names = list(programs.checks(arch, program))
            self.outcomes[arch, program] = programs.run(programs.models(arch, program), so_path, names)
        return self.outcomes[arch, program]

    def passed(self, arch: str) -> dict[str, bool]:
        """Check -> whether it passed, of all that ran."""
        ran = (found for (name, _), found in self.outcomes.items() if name == arch)
        return {check: outcome.passed for found in ran for check, outcome in found.items()}


@pytest.fixture(scope="session")
def results(packs: dict[str, Pack], toolchain: Toolchain, request: pytest.FixtureRequest) -> Iterator[Results]:
    found = Results(packs, toolchain)
    if device.properties() is not None:
        found.build([(arch, program) for arch in ARCHS for program in programs.programs(arch)])
    yield found
    target = os.environ.get("PTXBENCH_EVIDENCE_DIR")
    properties = device.properties()
    if target and properties is not None:
        for arch in ARCHS:
            if open_pack(ROOT, arch).arch.compute_capability == properties.compute_capability:
                device.write_evidence(Path(target), ROOT, arch, found.passed(arch), properties)


@pytest.mark.parametrize(
    ("arch", "program"), [(arch, program) for arch in ARCHS for program in programs.programs(arch)]
)
def test_a_check_program_builds(results: Results, arch: str, program: str) -> None:
    assert results.so_path(arch, program).exists()


@pytest.mark.parametrize(("arch", "program", "name"), CHECKS)
def test_a_check_agrees_with_its_model(results: Results, arch: str, program: str, name: str) -> None:
    if program != ON_HOST:
        properties = device.properties()
        wanted = open_pack(ROOT, arch).arch.compute_capability
        if properties is None or properties.compute_capability != wanted:
            pytest.skip(f"needs a device of compute capability {wanted[0]}.{wanted[1]}")
    outcome = results.of(arch, program)[name]
    assert outcome.passed, outcome.detail
