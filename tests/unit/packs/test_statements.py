"""Statements of the packs' prose that arithmetic or a document can contradict: numbers, formulas, worked examples."""

import re
from collections.abc import Iterator

import pytest

from ptxbench.packs import load_pack, open_pack
from ptxbench.packs.pack import pack_names
from tests.unit.factories import ROOT

ARCHS = pack_names(ROOT)

# CUDA C++ Programming Guide, "Compute Capabilities"; data sheets; PTX ISA, "wgmma.mma_async" and "Tensor Memory".
PARAMETERS = {
    "h100": {
        "SMs": "132 (SXM)",
        "HBM": "H100 SXM 3.35 TB/s, H200 4.8",
        "shared memory": "228 KB per SM; at most 232,448 bytes per block",
        "registers": "65,536 of 32 bits per SM, 255 per thread",
        "threads": "2,048 per SM, 1,024 per block",
        "named barriers": "16 per block",
        "cluster": "8 blocks portably",
        "TMA box": "256 per dimension",
        "wgmma BF16": "m64nNk16, N = 8, 16, ... 256; m64n256k16: 128 clocks",
        "`ex2`": "16 per SM and clock",
    },
    "b200": {
        "SMs": "148;",
        "HBM3e": "about 8 TB/s",
        "shared memory": "228 KB per SM; at most 232,448 bytes per block",
        "registers": "65,536 per SM, 255 per thread; 1,024 threads per block",
        "cluster": "up to 8 blocks",
        "tensor memory (TMEM)": "128 lanes x 512 columns of 32 bits per SM",
        "`tcgen05.mma` BF16": "K = 16; M = 64, 128 (pair: 128, 256); N up to 256",
        "TMA box": "256 per dimension",
        "`ex2`": "16 per SM and clock",
    },
}


@pytest.mark.parametrize("arch", ARCHS)
def test_parameters_are_those_of_the_documents(arch: str):
    rows = (line.split("|") for line in load_pack(ROOT, arch, "params").text.splitlines() if line.startswith("|"))
    values = {row[1].strip(): row[2].strip() for row in rows}
    assert {name: values[name] for name, value in PARAMETERS[arch].items() if not values[name].startswith(value)} == {}


def texts(arch: str) -> Iterator[str]:
    pack = load_pack(ROOT, arch, "full")
    yield from (pack.text, *pack.variants.values())


@pytest.mark.parametrize("arch", ARCHS)
def test_register_counts_are_such_as_setmaxnreg_takes(arch: str):
    """PTX ISA, "setmaxnreg": 24 to 256, a multiple of 8."""
    call = r"(?:setmaxnreg_(?:inc|dec)|registers_(?:take|release))<(\d+)>"
    counts = {int(count) for text in texts(arch) for count in re.findall(call, text)}
    assert counts
    assert all(24 <= count <= 256 and count % 8 == 0 for count in counts), counts


@pytest.mark.parametrize("name", sorted(load_pack(ROOT, "h100", "full").variants))
def test_registers_of_hoppers_roles_fit_in_the_block(name: str):
    """One producer and two consumer warpgroups, 168 registers a thread at launch."""
    text = load_pack(ROOT, "h100", "full").variants[name]
    producer = re.findall(r"setmaxnreg_dec<(\d+)>", text)
    consumers = re.findall(r"setmaxnreg_inc<(\d+)>", text)
    assert all(int(p) + 2 * int(c) <= 3 * 168 for p in producer for c in consumers)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_schedule_stands_under_its_variants_name(arch: str):
    found = {name: paths[0].stem for name, paths in open_pack(ROOT, arch).schedule_paths().items()}
    assert found == {name: name.removesuffix("-with-forward-schedule") for name in found}


def swizzled(offset: int, span: int) -> int:
    """PTX ISA, "Swizzling Modes": 16-byte chunks of rows of ``span`` bytes, the pattern repeating after 8 spans."""
    row, chunk = offset // span, offset % span // 16
    return offset - chunk * 16 + (chunk ^ row // (128 // span) % (span // 16)) * 16


def test_the_worked_examples_of_the_swizzle():
    text = (ROOT / "knowledge_packs/h100/contracts/layouts.md").read_text()
    example = re.search(
        r"row (\d+), column (\d+)\) has offset (\d+) \* 128 \+ (\d+) \* 2 = (\d+) = .* chunk (\d+)\. "
        r"It lies in chunk (\d+) \^ (\d+) = (\d+): (\d+) \+ (\d+) \* 16 \+ 6 = (\d+)\. "
        r"`swizzle<128>\((\d+)\)` = (\d+) \^ \(\((\d+) >> 3\) & 112\) = (\d+) \^ (\d+) = (\d+)",
        text,
    )
    assert example is not None
    row, column = int(example[1]), int(example[2])
    offset, chunk = row * 128 + column * 2, column * 2 // 16
    place = swizzled(offset, 128)
    shown = [row, column, offset, chunk, chunk, row, chunk ^ row, row * 128, chunk ^ row, place]
    shown += [offset, offset, offset, offset, offset >> 3 & 112, place]
    assert [int(example[i]) for i in (1, 2, *range(5, 19))] == shown
    text = (ROOT / "knowledge_packs/b200/contracts/descriptors.md").read_text()
    assert "row 3, byte 80 (chunk 5) is at 3 * 128 + (5 ^ 3) * 16 = 480" in text
    assert swizzled(3 * 128 + 80, 128) == 480


def test_the_bits_of_the_swizzles():
    text = (ROOT / "knowledge_packs/b200/contracts/descriptors.md").read_text()
    found = {
        128: re.search(r"bits (\d)-(\d) \^= bits (\d)-(\d)\)", text),
        64: re.search(r"64-byte swizzle: bits (\d)-(\d) \^= bits (\d)-(\d), base 512", text),
        32: re.search(r"32-byte: bit (\d) \^= bit (\d), base 256", text),
    }
    for span, match in found.items():
        assert match is not None
        low, from_low = int(match[1]), int(match[2 if span == 32 else 3])
        bits = 1 if span == 32 else int(match[2]) - low + 1
        for offset in range(0, 4096, 16):
            assert swizzled(offset, span) == offset ^ (offset >> from_low & (1 << bits) - 1) << low, (span, offset)


def value(formula: str, **names: int) -> int:
    """A formula as the packs write it: integer division, ``2 i`` and ``8 (t % 2)`` are products."""
    python = re.sub(r"(\d) (?=[a-z(])", r"\1 * ", formula).replace("/", "//")
    return int(eval(python, {"__builtins__": {}}, names))


def bits(number: int, weights: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Row and column of a number, each of whose bits adds a weight."""
    chosen = [weight for bit, weight in enumerate(weights) if number >> bit & 1]
    return sum(row for row, _ in chosen), sum(column for _, column in chosen)


def columns(first: int) -> tuple[tuple[int, int], ...]:
    return tuple((0, first << bit) for bit in range(6))


# PTX ISA, "Matrix fragments for shape ...": what each bit of the thread and of the register's number adds.
_ROWS = ((1, 0), (2, 0), (4, 0))
FRAGMENTS = {
    "32x32b": (tuple((1 << bit, 0) for bit in range(5)), columns(1)),
    "16x64b": (((8, 0), (0, 1), *_ROWS), columns(2)),
    "16x128b": (((0, 1), (0, 2), *_ROWS), ((8, 0), *columns(4))),
    "16x256b": (((0, 2), (0, 4), *_ROWS), ((0, 1), (8, 0), *columns(8))),
}


@pytest.mark.parametrize("shape", FRAGMENTS)
def test_where_a_register_of_tensor_memory_lies(shape: str):
    text = (ROOT / "knowledge_packs/b200/contracts/tmem.md").read_text()
    row = re.search(rf"^\| {shape} \| r\[(.*?)\] \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert row is not None
    threads, registers = FRAGMENTS[shape]
    for t in range(32):
        for i in range(8):
            for h in range(2 if "h" in row[1] else 1):
                for e in range(2 if "e" in row[1] else 1):
                    names = {"i": i, "h": h, "e": e, "t": t}
                    lane, column = map(sum, zip(bits(t, threads), bits(value(row[1], **names), registers), strict=True))
                    assert (value(row[2], **names), value(row[3], **names)) == (lane, column), names


@pytest.mark.parametrize("shape", [shape for shape in FRAGMENTS if shape != "32x32b"])
def test_the_comment_of_a_load_says_the_same(shape: str):
    contract = (ROOT / "knowledge_packs/b200/contracts/tmem.md").read_text()
    row = re.search(rf"^\| {shape} \| (.*?) \| (.*?) \| (.*?) \|$", contract, re.MULTILINE)
    header = (ROOT / "knowledge_packs/b200/templates/tmem.cuh").read_text()
    comment = header[: header.index(f"tmem_ld_{shape}(")].rpartition("\n// ")[2]
    assert row is not None
    assert f"{row[1]} is lane {row[2]}, column {row[3]}." in comment


def test_where_an_accumulator_of_wgmma_lies():
    """PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"."""
    text = (ROOT / "knowledge_packs/h100/contracts/layouts.md").read_text()
    found = re.search(r"d\[(4 j[^\]]*)\] is row (.*?), column (.*?), for r, e in", text)
    assert found is not None
    lanes, registers = ((0, 2), (0, 4), *_ROWS), ((0, 1), (8, 0), *columns(8))
    for number in range(4 * 32 * 16):
        w, lane, j, r, e = number >> 9, number >> 4 & 31, number >> 2 & 3, number >> 1 & 1, number & 1
        names = {"w": w, "l": lane, "j": j, "r": r, "e": e}
        row, column = map(sum, zip(bits(lane, lanes), bits(value(found[1], **names), registers), strict=True))
        assert (value(found[2], **names), value(found[3], **names)) == (16 * w + row, column), names
