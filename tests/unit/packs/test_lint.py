"""Each rule of the lint finds what it is for, in the real pack with one defect."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.packs import lint
from ptxbench.packs.pack import pack_names
from tests.unit.factories import ROOT

ARCHS = pack_names(ROOT)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_packs_are_clean(arch: str):
    assert [str(found) for found in lint(ROOT, arch)] == []


def replace(name: str, old: str, new: str, count: int = 1) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, count))

    return edit


def add(name: str, text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text((path.read_text() if path.exists() else "") + text)

    return edit


CLAIMS = "templates/validation.yaml"
DEFECTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a dropped clobber": (
        replace("templates/roles.cuh", ':"r"(id), "r"(threads) : "memory");', ':"r"(id), "r"(threads));'),
        "clobber",
        "named_sync",
    ),
    "a dropped clobber in a macro": (
        replace("templates/tma.cuh", '"r"(bar), TMA_COORDINATES : "memory")', '"r"(bar), TMA_COORDINATES)'),
        "clobber",
        "TMA_DIMENSION",
    ),
    "assembly that is not volatile": (
        replace("templates/fences.cuh", "asm volatile", "asm"),
        "clobber",
        "fence_mbarrier_init",
    ),
    "assembly under its other name": (
        replace(
            "templates/roles.cuh",
            'asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory")',
            '__asm__("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads))',
        ),
        "clobber",
        "named_sync",
    ),
    "no instruction claimed": (
        replace(CLAIMS, "mbar_init: {ptx: mbarrier.init.shared::cta.b64", 'mbar_init: {ptx: "-"'),
        "ptx",
        "mbar_init: its assembly holds instructions",
    ),
    "an effect that claims to be pure": (
        replace(CLAIMS, 'use: "mbar_arrive(bar);"', 'pure: true, use: "mbar_arrive(bar);"'),
        "pure",
        "mbar_arrive: claims to be pure;",
    ),
    "an effect of another function": (
        replace(CLAIMS, 'use: "mbar_wait(bar, 1);"', 'pure: true, use: "mbar_wait(bar, 1);"'),
        "pure",
        "mbar_wait: claims to be pure",
    ),
    "a misspelled helper in plain words": (
        add("schedules/warp-specialization.md", "Then cluster_snyc before the end."),
        "helper",
        "cluster_snyc, which no template defines; cluster_sync is one",
    ),
    "a misspelled helper in pseudocode": (
        add("schedules/warp-specialization.md", "\n```text\nnmaed_sync(1, 128)\n```\n"),
        "helper",
        "nmaed_sync",
    ),
    "a misspelled helper of one word": (
        replace("schedules/flashattention-3-pipelined-schedule.md", "`pin(S_next)`", "`pinn(S_next)`"),
        "helper",
        "pinn",
    ),
    "a misspelled helper in a schedule": (
        replace("schedules/warp-specialization.md", "`mbar_arrive(empty)`", "`mbar_arive(empty)`"),
        "helper",
        "mbar_arive",
    ),
    "a misspelled helper without a call": (
        replace("contracts/memory.md", "`load_acquire`", "`load_aquire`"),
        "helper",
        "load_aquire",
    ),
    "a misspelled helper in code": (
        replace("contracts/completion.md", "mbar_expect_tx(bar, kStage);", "mbar_expect(bar, kStage);"),
        "helper",
        "mbar_expect",
    ),
    "a misspelled name in a claim": (
        replace(CLAIMS, "\nmbar_inval:", "\nmbar_invalid:"),
        "no-function",
        "mbar_invalid",
    ),
    "a function without a claim": (replace(CLAIMS, "\nmbar_inval:", "\nmbar_invalid:"), "no-claim", "mbar_inval"),
    "another instruction than claimed": (
        replace("templates/mbarrier.cuh", "mbarrier.inval.shared::cta", "mbarrier.inval.shared"),
        "ptx",
        "mbar_inval",
    ),
    "a claim without SASS": (replace(CLAIMS, "sass: [BAR.ARV], ", ""), "sass", "named_arrive"),
    "a use that does not use it": (
        replace(CLAIMS, 'use: "cluster_wait();"', 'use: "cluster_sync();"'),
        "use",
        "cluster_wait",
    ),
    "a function without a comment": (
        add("templates/roles.cuh", "\n__device__ __forceinline__ void bare() {}\n"),
        "comment",
        "bare",
    ),
    "a header without a guard": (replace("templates/roles.cuh", "#pragma once\n", ""), "guard", "pragma"),
    "an order that does not compile": (
        replace(
            "pack.yaml",
            "  - templates/base.cuh\n  - templates/mbarrier.cuh\n",
            "  - templates/mbarrier.cuh\n  - templates/base.cuh\n",
        ),
        "order",
        "base.cuh",
    ),
    "a file that no prompt holds": (add("contracts/lost.md", "x"), "unnamed-file", "no prompt"),
    "a file that is no text": (
        lambda folder: (folder / "templates" / "lost.bin").write_bytes(b"\xff\xfe"),
        "unnamed-file",
        "no prompt",
    ),
    "a variant without a schedule": (
        replace("pack.yaml", "  warp-specialization: [", "  warp-specialisation: ["),
        "schedule",
        "no schedule for the prompt variant warp-specialization",
    ),
    "a schedule without a variant": (
        replace("pack.yaml", "  warp-specialization: [", "  warp-specialisation: ["),
        "schedule",
        "warp-specialisation is no prompt variant",
    ),
    "parameters that are too long": (add("params.md", "word " * 600), "size", "parameters"),
    "a pack that is too long": (add("contracts/memory.md", "word " * 12_000), "size", "20,000 to 30,000"),
    "a place of a machine": (add("contracts/memory.md", "see /home/me/notes"), "machine-path", "/home/"),
    "an interim pack": (replace("pack.yaml", "interim: false", "interim: true"), "interim", "stand-in"),
    "a pack that cannot be read": (replace("pack.yaml", "interim: false", "interim: maybe"), "unreadable", "interim"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(tmp_path: Path, name: str):
    defect, rule, words = DEFECTS[name]
    for part in ("knowledge_packs", "cases"):
        shutil.copytree(ROOT / part, tmp_path / part)
    defect(tmp_path / "knowledge_packs" / "h100")
    found = lint(tmp_path, "h100")
    assert any(each.rule == rule and words in each.message for each in found), [str(each) for each in found]
    assert {each.rule for each in found} <= {rule, "no-claim", "no-function", "schedule", "helper", "use", "unreadable"}
