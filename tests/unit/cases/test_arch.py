from __future__ import annotations

import pytest

from ptxbench.cases import available_archs, load_arch, opcode_base
from ptxbench.errors import InputError
from ptxbench.trace import FileError
from tests.unit.cases import checkout


@pytest.fixture(scope="module")
def h100():
    return load_arch(checkout.ROOT, "h100")


@pytest.fixture(scope="module")
def b200():
    return load_arch(checkout.ROOT, "b200")


def test_both_architectures_are_described():
    assert set(available_archs(checkout.ROOT)) >= {"b200", "h100"}


def test_hopper(h100):
    assert (h100.name, h100.title, h100.sm) == ("h100", "Hopper (H100/H200)", "sm_90a")
    assert h100.gencode == "arch=compute_90a,code=sm_90a"
    assert h100.bf16_flops_per_clock_per_sm == round(989.4e12 / (132 * 1.83e9))
    assert h100.covers((9, 0))
    assert not h100.covers((10, 0))


def test_blackwell(b200):
    assert (b200.name, b200.sm) == ("b200", "sm_100a")
    assert b200.gencode == "arch=compute_100a,code=sm_100a"
    assert b200.covers((10, 0))
    assert not b200.covers((10, 3))
    assert b200.bf16_flops_per_clock_per_sm * 148 * 1.86e9 == pytest.approx(2.25e15, rel=0.01)


@pytest.mark.parametrize(
    "opcode",
    [
        "HGMMA.64x256x16.F32.BF16",
        "QGMMA.64x64x32.F32.E4M3.E4M3",
        "IGMMA",
        "BGMMA",
        "UTMALDG.2D",
        "UTMASTG",
        "UTMAREDG.3D.ADD",
    ],
)
def test_hopper_selects(h100, opcode):
    assert h100.selects(opcode)
    assert not h100.reports(opcode)


@pytest.mark.parametrize(
    "opcode",
    [
        "UTMACCTL.IV",
        "UTMACCTL.PF",
        "UTMAPF.L2.2D",
        "UTMACMDFLUSH",
        "UBLKCP.S.G",
        "UBLKRED",
        "HMMA.16816.F32",
        "LDGSTS",
        "FFMA",
        "",
    ],
)
def test_hopper_does_not_select(h100, opcode):
    assert not h100.selects(opcode)


@pytest.mark.parametrize(
    "opcode",
    ["UTCHMMA", "UTCQMMA.2CTA", "UTCIMMA", "UTCOMMA", "UTCBAR", "UTCCP.T.S", "LDTM.x32", "STTM", "UTCATOMSWS.AND"],
)
def test_blackwell_selects(b200, opcode):
    assert b200.selects(opcode)


@pytest.mark.parametrize("opcode", ["UTMALDG.2D", "UTMASTG", "UTMAREDG", "UTMAPF", "HGMMA.64x64x16.F32", "LDT", "LDSM"])
def test_blackwell_does_not_select(b200, opcode):
    assert not b200.selects(opcode)


def test_not_selected_wins(h100):
    both = h100.model_copy(update={"selected": ("UTMA*",), "not_selected": ("UTMALDG",)})
    assert both.selects("UTMASTG")
    assert not both.selects("UTMALDG.2D")
    assert both.reports("UTMALDG.2D")


def test_matrix_instructions_are_selected_ones(h100, b200):
    assert h100.is_matrix("HGMMA.64x64x16.F32.BF16")
    assert not h100.is_matrix("UTMALDG.2D")
    assert not h100.is_matrix("HMMA.16816.F32")
    assert b200.is_matrix("UTCHMMA.2CTA")
    assert not b200.is_matrix("UTCBAR")


def test_noteworthy_groups(h100, b200):
    assert b200.note("UTCATOMSWS.FIND_AND_SET.ALIGN") == "tensor memory allocation"
    assert b200.note("UTCHMMA") is None
    assert h100.note("HGMMA") is None


@pytest.mark.parametrize(("opcode", "base"), [("HGMMA.64x8x16", "HGMMA"), (" LDTM ", "LDTM"), ("", "")])
def test_opcode_base(opcode, base):
    assert opcode_base(opcode) == base


def test_an_unknown_arch_lists_the_known_ones():
    with pytest.raises(InputError, match=r"unknown arch: expected one of .*h100.*found 'h1000'. Did you mean 'h100'"):
        load_arch(checkout.ROOT, "h1000")


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        ("name: h100", "name: h200", "name", "the name of its folder"),
        ("sm: sm_90a", "sm: sm90", "sm", "a string that matches"),
        ("code=sm_90a", "code=sm_90", "gencode", "'arch=compute_90a,code=sm_90a'"),
        ("[9, 0]", "[10, 0]", "compute_capability", "the compute capability of sm_90a"),
        ("[9, 0]", "[9]", "compute_capability", "at least 2 items"),
        ("per_sm: 4096", "per_sm: 4096.5", "bf16_flops_per_clock_per_sm", "a valid integer"),
        ('["*GMMA", UTMALDG', '["*gmma", UTMALDG', "selected[0]", "a string that matches"),
        ("noteworthy: {}", "noteworthy: []", "noteworthy", "an object"),
        ("title:", "titel:", "titel", "one of the keys"),
    ],
)
def test_refuses(tmp_path, old, new, field, expected):
    root = checkout.copy(tmp_path)
    line = checkout.edit(root / "knowledge_packs" / "h100" / "arch.yaml", old, new)
    with pytest.raises(FileError) as caught:
        load_arch(root, "h100")
    assert caught.value.field == field
    assert caught.value.line == line
    assert expected in caught.value.expected
