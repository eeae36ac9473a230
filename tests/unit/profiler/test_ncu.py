from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler import ncu
from ptxbench.profiler.ncu import METRICS, ReportError, kernels, opcode_of, parse, reason, rows
from tests.unit.profiler.samples import report

GEMM = "_Z4gemmPK13__nv_bfloat16S1_PS_iii"
HEADER = '"Kernel Name","k",\n"Address","Source","inst_executed","thread_inst_executed_true"\n'


def counts(kernel_prefix: str) -> dict[str, tuple[int, int]]:
    return {
        count.opcode: (count.inst_executed, count.thread_inst_executed_true)
        for count in parse(report("ncu_two_kernels.csv"))
        if count.kernel.startswith(kernel_prefix)
    }


def test_counts_of_a_real_report() -> None:
    assert counts("void at::native") == {
        "BRA": (8448, 270336),
        "FFMA": (16896, 0),
        "HFMA2.MMA": (8448, 270336),
        "LDC": (16896, 540672),
        "LDC.64": (8448, 0),
        "LDG.E.64": (8448, 0),
        "NOP": (0, 0),
        "ULDC.64": (8448, 270336),
    }


def test_lines_of_one_opcode_are_summed_and_thousands_separators_read() -> None:
    assert counts(GEMM) == {
        "EXIT": (128, 4096),
        "HGMMA.64x64x16.F32.BF16": (8448, 270336),
        "HGMMA.64x8x16.F32.BF16": (0, 0),
        "UTMALDG.2D": (143_360, 143_360),
    }


def test_launches_of_one_kernel_are_summed() -> None:
    text = report("ncu_two_kernels.csv")
    again = text + text[text.index(f'"Kernel Name","{GEMM}"') :]
    (hgmma,) = [count for count in parse(again) if count.opcode.startswith("HGMMA.64x64")]
    assert hgmma.inst_executed == 2 * 8448
    assert list(kernels(text).values()) == [1, 1]
    assert list(kernels(again).values()) == [1, 2]


def test_kernels_are_in_launch_order() -> None:
    first, second = kernels(report("ncu_two_kernels.csv"))
    assert first.startswith("void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4,")
    assert first.endswith("(long, at::PhiloxCudaState, T3, T4)")
    assert second == GEMM


def test_the_tools_own_lines_are_no_rows() -> None:
    assert len(list(rows(report("ncu_two_kernels.csv")))) == 15


def test_error_is_quoted() -> None:
    assert reason(report("ncu_two_kernels.csv")) == "The application returned an error code (1)."


def test_missing_permission_comes_with_advice() -> None:
    text = report("ncu_no_permission.csv")
    assert parse(text) == ()
    assert reason(text).startswith("ERR_NVGPUCTRPERM - The user does not have permission")
    assert "run as root" in reason(text)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in reason(text)


def test_advice_survives_a_long_error() -> None:
    text = reason(f"==ERROR== {'x' * 5000} ERR_NVGPUCTRPERM")
    assert len(text) < 1000
    assert "NVreg_RestrictProfilingToAdminUsers=0" in text


def test_no_error_no_reason() -> None:
    assert reason("==PROF== Connected\n") == ""


@pytest.mark.parametrize("count", ["n/a", "(!) n/a", "", "-1", "12.5", "1e3", "٣"])
def test_count_that_is_no_number_is_an_error_that_shows_it(count: str) -> None:
    with pytest.raises(ReportError, match="expected a count in the report") as caught:
        parse(f'{HEADER}"0x0","      FFMA R1","{count}","0"\n')
    assert repr(count) in str(caught.value)


def test_table_without_the_metrics_has_no_rows() -> None:
    assert parse('"Kernel Name","k",\n"Address","Source","inst_executed"\n"0x0","FFMA","1"\n') == ()


def test_line_that_is_cut_off_is_no_row() -> None:
    assert parse(f'{HEADER}"0x0","      FFMA R1","4","128"\n"0x1","      FADD') == parse(
        f'{HEADER}"0x0","      FFMA R1","4","128"\n'
    )


def test_field_beyond_the_readers_limit_is_an_error() -> None:
    with pytest.raises(ReportError, match="not CSV"):
        parse('"Kernel Name","' + "k" * 200_000 + '",\n')


@pytest.mark.parametrize(
    ("sass", "opcode"),
    [
        ("      HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT", "HGMMA.64x256x16.F32.BF16"),
        ("@!P0  UTMASTG.2D [UR8], [UR4]", "UTMASTG.2D"),
        ("@UP1 UTMALDG.3D.MULTICAST [UR8], [UR4], UR9", "UTMALDG.3D.MULTICAST"),
        ("@P0   EXIT", "EXIT"),
        ("EXIT;", "EXIT"),
        ("      NOP", "NOP"),
        ("@P0", ""),
        ("", ""),
    ],
)
def test_opcode(sass: str, opcode: str) -> None:
    assert opcode_of(sass) == opcode


OPCODES = st.from_regex(r"[A-Z][A-Z0-9]{0,9}(\.[A-Za-z0-9]{1,8}){0,4}", fullmatch=True)
GUARDS = st.sampled_from(["", "@P0 ", "@!P6  ", "@UP3 ", "@!UPT ", "@PT   "])
OPERANDS = st.text(alphabet="RUP0123456789[],.-+ xc", max_size=30)


@given(OPCODES, GUARDS, OPERANDS)
def test_opcode_is_found_behind_any_guard(opcode: str, guard: str, operands: str) -> None:
    assert opcode_of(f"  {guard} {opcode} {operands}") == opcode
    assert opcode_of(f"{guard}{opcode};") == opcode


@given(st.text())
def test_opcode_is_one_word_without_a_guard(sass: str) -> None:
    opcode = opcode_of(sass)
    assert not opcode.startswith("@")
    assert len(opcode.split()) <= 1


@given(st.lists(st.tuples(OPCODES, GUARDS, st.integers(0, 10**14), st.integers(0, 10**14)), max_size=20))
def test_totals_are_kept(lines: list[tuple[str, str, int, int]]) -> None:
    body = "".join(f'"0x0","{guard}{opcode} R0","{a:,}","{b}"\n' for opcode, guard, a, b in lines)
    parsed = parse(HEADER + body)
    assert sum(count.inst_executed for count in parsed) == sum(line[2] for line in lines)
    assert sum(count.thread_inst_executed_true for count in parsed) == sum(line[3] for line in lines)
    assert {count.opcode for count in parsed} == {line[0] for line in lines}
    assert [(count.kernel, count.opcode) for count in parsed] == sorted({("k", line[0]) for line in lines})


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ReportError:
        return


def test_arguments_ask_for_the_metrics_and_leave_clocks_alone() -> None:
    found = ncu.arguments(Path("/r/report"))
    assert found[found.index("--metrics") + 1] == ",".join(METRICS)
    assert found[found.index("--clock-control") + 1] == "none"
    assert found[found.index("--log-file") + 1] == "/r/report"


@pytest.mark.parametrize("count", ["9" * 5_000, "9" * 17, "9" * 16, "9" * 15])
def test_a_count_that_no_kernel_reaches_is_refused(count: str) -> None:
    """A report may be forged (docs/limitations.md): nothing but a ReportError may come of it."""
    lines = f'"HGMMA R1","{count}","1"\n' * 12
    with pytest.raises(ReportError):
        parse(f'"Kernel Name","k"\n"Source","{METRICS[0]}","{METRICS[1]}"\n{lines}')
