"""What cuda-gdb prints of a running kernel becomes places, and nothing that it prints can do more than be left out."""

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.gdb_text import (
    MAX_INSTRUCTION_CHARS,
    MAX_NAME_CHARS,
    Span,
    Symbol,
    block_shape,
    busiest,
    places,
    questions,
    spans,
    symbols,
)
from tests.unit.profiler.samples import report

BASE = 0x7F5C5F7A0000
WAITS = "_Z5waitsPmi"
ORIGIN = (0, 0, 0)


def answers(*entries: tuple[int, str, str]) -> str:
    """What is printed for addresses: the instruction's line and the symbol's."""
    return "".join(f"(cuda-gdb) \n@{at:#x}\n(cuda-gdb) {shown}\n(cuda-gdb) {symbol}\n" for at, shown, symbol in entries)


def test_rows_of_a_real_listing() -> None:
    rows = spans(report("cuda_gdb_threads_h200.txt"))
    assert len(rows) == 10
    assert rows[0] == Span(ORIGIN, ORIGIN, ORIGIN, 32, BASE + 432)
    assert rows[-1] == Span((199, 0, 0), (32, 0, 0), (199, 0, 0), 96, BASE + 720)
    assert busiest(rows, 3) == (BASE + 720, BASE + 384, BASE + 368)


def test_shape_of_the_current_kernels_blocks() -> None:
    text = report("cuda_gdb_kernels_h200.txt")
    assert block_shape(f"(cuda-gdb) {text}(cuda-gdb) ") == (128, 1, 1)
    assert block_shape(text.replace("*", " ")) is None
    assert block_shape("No CUDA kernels.\n") is None


def test_places_of_a_real_kernel() -> None:
    rows = spans(report("cuda_gdb_threads_h200.txt"))
    first, _ = report("cuda_gdb_instructions_h200.txt").splitlines()
    known = symbols(
        answers(
            (
                BASE + 720,
                f"   {BASE + 720:#x} <{WAITS}+720>:\tBRA {BASE + 736:#x}",
                f"{WAITS} + 720 in section .text.{WAITS}",
            ),
            (BASE + 432, first, f"{WAITS} + 432 in section .text.{WAITS} of /tmp/elf"),
        )
    )
    many, one = places(rows, known, (128, 1, 1))
    assert (many.kernel, many.offset, many.threads, many.blocks) == (WAITS, 720, 480, 5)
    assert (many.block, many.thread, many.instruction) == (ORIGIN, (32, 0, 0), f"BRA {BASE + 736:#x}")
    assert (one.kernel, one.offset, one.threads, one.blocks) == (WAITS, 432, 32, 1)
    assert one.instruction == "@!P0 BRA 0x7f5c5f7a0170"


def test_a_row_over_many_blocks_counts_them_all() -> None:
    """As the manual shows it: threads 32 to 127 of the first block, then 191 whole blocks."""
    text = "(0,0,0)(32,0,0) (191,0,0) (127,0,0) 24544 0x000000000088f800   acos.cu 374\n"
    known = {0x88F800: Symbol("k", 16, "k", "")}
    (place,) = places(spans(text), known, (128, 1, 1))
    assert (place.threads, place.blocks) == (24544, 192)
    (other,) = places(spans(text), known, None)
    assert other.blocks == 2


def test_a_function_inside_a_kernel_has_the_kernels_offset_where_its_start_is_known() -> None:
    at, inner = BASE + 0x40, BASE + 0x1F0
    local = f"${WAITS}$_Z4spinPVi"
    rows = (Span(ORIGIN, ORIGIN, ORIGIN, 1, at), Span(ORIGIN, (1, 0, 0), ORIGIN, 1, inner))
    shown = inner, f"   {inner:#x} <{local}+16>:\tNANOSLEEP 0x64", f"{local} + 16 in section .text.{WAITS}"
    alone = places(rows, symbols(answers(shown)), None)
    assert [(place.kernel, place.offset) for place in alone] == [(WAITS, None)]
    caller = at, f"=> {at:#x} <{WAITS}+64>:\tCALL.REL.NOINC {inner:#x}", ""
    both = places(rows, symbols(answers(caller, shown)), None)
    assert [(place.kernel, place.offset) for place in both] == [(WAITS, 0x40), (WAITS, 0x1F0)]


def test_the_section_names_the_kernel_of_the_compilers_own_functions() -> None:
    name = "$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath"
    shown = BASE, f"{BASE:#x} <{name}>:\tMOV R1, R2", f"{name} in section .text.{WAITS}"
    assert symbols(answers(shown)) == {BASE: Symbol(name, 0, WAITS, "MOV R1, R2")}


def test_either_answer_is_enough_for_a_place() -> None:
    by_section = symbols(answers((BASE, "Cannot access memory", f"{WAITS} + 432 in section .text.{WAITS}")))
    assert by_section == {BASE: Symbol(WAITS, 432, WAITS, "")}
    by_instruction = symbols(answers((BASE, f"{BASE:#x} <{WAITS}+432>:\tEXIT", "No symbol matches.")))
    assert by_instruction == {BASE: Symbol(WAITS, 432, WAITS, "EXIT")}


def test_an_answer_for_another_address_is_none() -> None:
    assert symbols(answers((BASE, f"{BASE + 16:#x} <{WAITS}+448>:\tEXIT", ""))) == {}


def test_names_and_instructions_are_bounded() -> None:
    (known,) = symbols(answers((BASE, f"{BASE:#x} <k>:\t" + "X" * 999, ""))).values()
    assert len(known.instruction) == MAX_INSTRUCTION_CHARS
    name = "n" * (MAX_NAME_CHARS + 1)
    assert symbols(answers((BASE, f"{BASE:#x} <{name}>:\tEXIT", ""))) == {}


def test_questions_hold_nothing_but_the_address() -> None:
    assert questions(BASE) == (r"echo \n@0x7f5c5f7a0000\n", "x/i 0x7f5c5f7a0000", "info symbol 0x7f5c5f7a0000")


PIECES = st.sampled_from(
    ["@0x10\n", "0x10 <", "+16>:", "(0,0,0)", " (1,2,3) ", " 32 0x10 ", "* 0x0f ", " in section .text.", "k", "$", "\n"]
)
TEXT = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join))


@given(TEXT)
def test_any_text_is_read_without_an_error(text: str) -> None:
    rows, known = spans(text), symbols(text)
    for place in places(rows, known, block_shape(text)):
        assert place.threads <= sum(row.threads for row in rows)
        assert place.offset is None or place.offset >= 0
        assert place.blocks >= 1


@given(st.text(alphabet=st.characters(exclude_characters="0123456789")))
def test_text_without_numbers_has_no_places(text: str) -> None:
    assert places(spans(text), symbols(text), block_shape(text)) == ()


INDEX = st.tuples(*[st.integers(0, 2**31 - 1)] * 3)


@given(st.lists(st.builds(Span, INDEX, INDEX, INDEX, st.integers(1, 2**31 - 1), st.integers(0, 2**64 - 1)), max_size=5))
def test_rows_are_read_back(rows: list[Span]) -> None:
    def shown(index: tuple[int, ...]) -> str:
        return "({},{},{})".format(*index)

    text = "".join(
        f"*  {shown(row.first_block)} {shown(row.first_thread)} {shown(row.last_block)} (0,0,0) "
        f"{row.threads} 0x{row.address:016x}   0 \n"
        for row in rows
    )
    assert list(spans(text)) == rows
