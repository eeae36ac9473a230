"""Defects put into a copy of Hopper's pack: the compiler, the disassembler or a model on the host must catch each.

Those that only the texts show are in test_lint.py; those that only a device shows are marked ``gpu`` here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ptx_tests.packs import device, harness, programs

from ptxbench.packs.pack import PackFolder, open_pack
from ptxbench.packs.validation import load_claims
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import discover
from tests.unit.factories import ROOT
from tests.unit.toolchain.parts import shared_cache

PackMaker = Callable[[str, str, str], PackFolder]


@pytest.fixture
def defective(tmp_path: Path) -> PackMaker:
    """A pack in which the first ``old`` of a header is ``new``."""

    def make(header: str, old: str, new: str) -> PackFolder:
        shutil.copytree(ROOT / "knowledge_packs", tmp_path / "knowledge_packs")
        path = tmp_path / "knowledge_packs" / "h100" / "templates" / header
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return open_pack(tmp_path, "h100")

    return make


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(discover(), BuildCache(shared_cache(tmp_path_factory)))


def compiled(pack: PackFolder, toolchain: Toolchain, folder: Path, name: str) -> harness.Compiled:
    """The kernel that uses one function."""
    claim = load_claims(pack.folder)[name]
    source = harness.one_file(pack) + harness.uses({name: claim}) + harness.EXPORT
    return harness.compile_source(source, pack.arch.gencode, toolchain.tools, folder / "build")


ORDERING = {
    "mbar_test_wait": ("mbarrier.cuh", "mbarrier.test_wait"),
    "load_acquire": ("fences.cuh", "ld.acquire"),
    "dsmem_load": ("cluster.cuh", "ld.shared::cluster"),
    "ldmatrix_x4": ("fragments.cuh", "ldmatrix.sync.aligned.m8n8.x4.shared"),
}


@pytest.mark.parametrize("name", ORDERING)
def test_assembly_that_only_seems_to_compute_no_longer_keeps_loads_apart(
    defective: PackMaker, toolchain: Toolchain, tmp_path: Path, name: str
):
    """Neither volatile nor with a clobber. (With volatile alone nvcc 13.0 keeps them apart: see the lint.)"""
    header, mnemonic = ORDERING[name]
    text = (ROOT / "knowledge_packs" / "h100" / "templates" / header).read_text()
    start = text.rindex("asm volatile", 0, text.index(f"{mnemonic}"))
    whole = text[start : text.index(";", text.index('"memory")', start)) + 1]
    pure = whole.replace("asm volatile", "asm").replace(' : "memory"', "")
    found = compiled(defective(header, whole, pure), toolchain, tmp_path, name)
    assert found.returncode == 0, found.output
    assert harness.shared_loads(found.ptx[f"use_{name}"]) == 1


def test_a_function_of_the_pack_keeps_them_apart(toolchain: Toolchain, tmp_path: Path):
    found = compiled(open_pack(ROOT, "h100"), toolchain, tmp_path, "mbar_test_wait")
    assert harness.shared_loads(found.ptx["use_mbar_test_wait"]) == 2


OTHER_INSTRUCTIONS = {
    "bulk_add_f32": ("tma.cuh", "bulk_group.add.f32", "bulk_group.add.u32"),
    "stmatrix_x4_trans": ("fragments.cuh", "x4.trans.shared", "x4.shared"),
    "cluster_arrive": ("cluster.cuh", "arrive.release.aligned", "arrive.relaxed.aligned"),
}


@pytest.mark.parametrize("name", OTHER_INSTRUCTIONS)
def test_another_instruction_than_claimed_is_seen(
    defective: PackMaker, toolchain: Toolchain, tmp_path: Path, name: str
):
    found = compiled(defective(*OTHER_INSTRUCTIONS[name]), toolchain, tmp_path, name)
    claim = load_claims(ROOT / "knowledge_packs" / "h100")[name]
    ptx, sass = found.ptx[f"use_{name}"], found.sass[f"use_{name}"]
    missing = [each for each in claim.ptx if not harness.holds_ptx(ptx, each)]
    missing += [each for each in claim.sass if not harness.holds(sass, each)]
    assert missing


def test_a_misspelled_helper_does_not_compile(defective: PackMaker, toolchain: Toolchain, tmp_path: Path):
    found = compiled(
        defective("mbarrier.cuh", "!mbar_try_wait(bar", "!mbar_try_wiat(bar"), toolchain, tmp_path, "mbar_wait"
    )
    assert found.returncode != 0
    assert "mbar_try_wiat" in found.output


def test_an_unused_variable_is_a_warning(defective: PackMaker, toolchain: Toolchain, tmp_path: Path):
    found = compiled(defective("roles.cuh", "{\n  asm", "{\n  int left;\n  asm"), toolchain, tmp_path, "named_sync")
    assert any("left" in line for line in harness.warnings(found.output))


HOST_DEFECTS = {
    "LBO and SBO swapped": ("wgmma.cuh", "((sbo & 0x3FFFF) >> 4) << 32", "((lbo & 0x3FFFF) >> 4) << 32", "descriptors"),
    "the wrong stride": ("wgmma.cuh", "(addr, 16, 8 * kSwizzle)", "(addr, 16, 4 * kSwizzle)", "descriptors"),
    "swizzle modes exchanged": (
        "wgmma.cuh",
        "kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3",
        "kSwizzle == 64 ? 3 : kSwizzle == 32 ? 2",
        "descriptors",
    ),
    "the wrong swizzle": ("fragments.cuh", "(offset >> 3)", "(offset >> 4)", "swizzle"),
    "the wrong parity": ("mbarrier.cuh", "phase ^= 1;", "phase = 1;", "ring"),
    "a parity that turns too early": ("mbarrier.cuh", "++slot == kSlots", "++slot == kSlots - 1", "ring"),
    "rows of accumulators exchanged": ("wgmma.cuh", "i / 2 % 2 * 8", "i % 2 * 8", "accumulators"),
    "the wrong rounding up": ("base.cuh", "(x + n - 1)", "(x + n)", "alignment"),
}


@pytest.mark.parametrize("name", HOST_DEFECTS)
def test_arithmetic_that_is_wrong_disagrees_with_its_model(defective: PackMaker, toolchain: Toolchain, name: str):
    header, old, new, check = HOST_DEFECTS[name]
    pack = defective(header, old, new)
    so_path = programs.build(toolchain, pack, "host", harness.one_file(pack))
    assert not programs.run(programs.models("h100", "host"), so_path, [check])[check].passed


DEVICE_DEFECTS = {
    "the wrong parity": (
        *("mbarrier.cuh", '"=r"(done) : "r"(bar), "r"(parity)', '"=r"(done) : "r"(bar), "r"(parity ^ 1)'),
        *("sync", "mbarrier_parity"),
    ),
    "LBO and SBO swapped": (*HOST_DEFECTS["LBO and SBO swapped"][:3], "wgmma", "wgmma_layouts"),
    "the wrong swizzle": (*HOST_DEFECTS["the wrong swizzle"][:3], "fragments", "store_box"),
    "halves of a pair exchanged": (
        "fragments.cuh",
        '"f"(high), "f"(low)',
        '"f"(low), "f"(high)',
        "fragments",
        "packing",
    ),
    "bytes that nobody expects": (
        "mbarrier.cuh",
        '[%0], %1;" ::"r"(bar), "r"(bytes)',
        '[%0], %1;" ::"r"(bar), "r"(bytes / 2)',
        "sync",
        "mbarrier_tx",
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", DEVICE_DEFECTS)
def test_a_device_sees_the_defect(defective: PackMaker, toolchain: Toolchain, name: str):
    found = device.properties()
    if found is None or found.compute_capability != (9, 0):
        pytest.skip("needs a device of compute capability 9.0")
    header, old, new, program, check = DEVICE_DEFECTS[name]
    pack = defective(header, old, new)
    so_path = programs.build(toolchain, pack, program, harness.one_file(pack))
    assert not programs.run(programs.models("h100", program), so_path, [check])[check].passed
