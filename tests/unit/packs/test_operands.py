"""What no compiler and, on Blackwell, no device tells: each operand of the assembly stands where PTX reads it."""

from pathlib import Path

import pytest
import yaml

from ptxbench.packs import open_pack
from ptxbench.packs.source import Definition, read_header
from tests.unit.factories import ROOT
from tests.unit.packs.operands import written_out

EXPECTED: dict[str, str] = yaml.safe_load(Path(__file__).with_name("b200_assembly.yaml").read_text())


def written(text: str) -> list[tuple[str, str]]:
    return list(written_out([Definition(("f",), ("f",), "", text, 1, False)]))


def test_every_function_of_blackwell_reads_its_operands_in_the_order_of_the_isa():
    headers = [read_header(path) for path in open_pack(ROOT, "b200").headers()]
    assert dict(written_out(found for header in headers for found in header.definitions)) == EXPECTED


DEFECTS = {
    "descriptors exchanged": ("mma.cuh", "[%0], %1, %2, %3, p;", "[%0], %2, %1, %3, p;"),
    "coordinates exchanged": ("tma.cuh", "[%1, {%3, %4}]", "[%1, {%4, %3}]"),
    "another parity": ("barrier.cuh", '"r"(bar), "r"(parity)', '"r"(bar), "r"(parity ^ 1)'),
    "address and rank exchanged": ("barrier.cuh", '"r"(addr), "r"(rank)', '"r"(rank), "r"(addr)'),
    "halves of a pair exchanged": ("base.cuh", '"f"(high), "f"(low)', '"f"(low), "f"(high)'),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_seen(tmp_path: Path, name: str):
    header, old, new = DEFECTS[name]
    text = (ROOT / "knowledge_packs" / "b200" / "templates" / header).read_text()
    assert old in text
    (tmp_path / header).write_text(text.replace(old, new, 1))
    found = dict(written_out(read_header(tmp_path / header).definitions))
    assert found.items() - EXPECTED.items()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('asm("mapa.u32 %0, %1, %2;" : "=r"(out) : "r"(addr), "r"(rank));', "mapa.u32 out, addr, rank;"),
        ('asm("mapa.u32 %0, %1, %2;" : "=r"(out) : "r"(rank), "r"(addr));', "mapa.u32 out, rank, addr;"),
        ('asm volatile("wait [%0], %1;" ::"r"(bar), "r"(f(parity) ^ 1) : "memory");', "wait [bar], f(parity) ^ 1;"),
        ('asm("mov.u32 %0, "\n "%%ctaid.x;" : "=r"(r));', "mov.u32 r, %ctaid.x;"),
        ('asm("{\\n a;\\n b %0;\\n}" ::"n"(k));', "{ a; b k; }"),
        ('asm volatile("exit;" ::: "memory");', "exit;"),
    ],
)
def test_operands_are_written_in_their_places(code: str, expected: str):
    assert written(code) == [("f", expected)]


def test_what_is_no_assembly_is_an_error():
    with pytest.raises(ValueError, match="no assembly begins"):
        written("asm(CODE);")
