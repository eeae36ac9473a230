"""What the packs say."""

import re

import pytest

from ptxbench.packs import load_pack, open_pack
from ptxbench.packs.pack import pack_names
from tests.unit.factories import ROOT

ARCHS = pack_names(ROOT)


def test_the_pipelined_schedule_has_neither_error_of_the_published_one():
    text = load_pack(ROOT, "h100", "full").variants["flashattention-3-pipelined-schedule"]
    order = [
        "For j = 1 .. T_c - 1, **T_c - 1 included**",
        "**m_old = m**; m = max(m_old",
        "wait for the output product",
        "O = a O",
        "**P_cur = P_next**",
        "O = O + P_cur V_(T_c - 1)",
        "**O = O / l; LSE = m / sqrt(D) + ln(l).**",
    ]
    places = [text.index(step) for step in order]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["flashattention-3-basic-schedule", "flashattention-3-pipelined-schedule"])
def test_a_forward_schedule_keeps_the_old_maximum_until_the_output_is_rescaled(name: str):
    text = load_pack(ROOT, "h100", "full").variants[name]
    assert text.index("m_old = m") < text.index("a = exp2((m_old - m) c)") < text.index("O = a O")


def test_texts_hold_nothing_of_the_machine():
    for arch in ARCHS:
        pack = load_pack(ROOT, arch, "full")
        for text in (pack.text, *pack.variants.values()):
            assert str(ROOT) not in text
            assert not re.search(r"(?<![\w.])/(?:home|usr|opt|work|tmp)/", text)


def test_the_packs_are_no_stand_ins():
    assert {arch: open_pack(ROOT, arch).file.interim for arch in ARCHS} == {"b200": False, "h100": False}


def test_every_width_of_wgmma_is_defined_with_its_operands_numbered():
    text = (ROOT / "knowledge_packs" / "h100" / "templates" / "wgmma.cuh").read_text()
    lines = re.findall(r"^WGMMA_N\((.*)\)$", text, re.MULTILINE)
    assert [[int(number) for number in line.split(", ")] for line in lines] == [
        [n, *range(n // 2, n // 2 + 7)] for n in range(8, 257, 8)
    ]
    for registers in range(8, 129, 4):
        last = ", ".join(f"%{i}" for i in range(registers - 4, registers))
        assert f'#define WG_R{registers} WG_R{registers - 4} ", {last}"\n' in text
        assert f"#define WG_D{registers}(d) WG_D{registers - 4}(d), WG_4(d, {registers - 4})\n" in text
