"""Reports named ``*_h200`` are of real runs; the other samples were written after the tool's documentation."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.sanitizer import MAX_LINE_CHARS, PRINT_LIMIT, Kept, Report, arguments, parse
from ptxbench.records import LEAK
from tests.unit.profiler.samples import report


@pytest.mark.parametrize(
    ("name", "kind", "kernel", "location", "total"),
    [
        ("memcheck_h200.txt", "Invalid __global__ write of size 4 bytes", "oob(int *, int)", "san.cu:3", 5),
        (
            "initcheck_h200.txt",
            "Uninitialized __global__ memory read of size 4",
            "uninit(int *, int *)",
            "san.cu:4",
            32,
        ),
        ("racecheck_h200.txt", "Error: Race reported between Write access at", "race(int *)", "san.cu:5", 1),
        ("synccheck_h200.txt", "Barrier error detected. Divergent thread", "sync_bad(int *)", "san.cu:6", 16),
    ],
)
def test_real_findings(name: str, kind: str, kernel: str, location: str, total: int) -> None:
    parsed = parse(report(name))
    assert (parsed.total, parsed.complete, parsed.remark) == (total, True, "")
    for finding in parsed.findings:
        assert finding.kind.startswith(kind)
        assert (finding.kernel, finding.location) == (kernel, location)
        assert finding.offset is not None
        assert f"+0x{finding.offset:x} in {location}" in f"{finding.kind} {finding.message}"
        assert "backtrace" not in finding.message
        assert "Host Frame" not in finding.message


def test_real_details() -> None:
    first, second = parse(report("memcheck_h200.txt")).findings
    assert first.message.splitlines() == [
        "at oob(int *, int)+0x80 in san.cu:3",
        "by thread (0,0,0) in block (0,0,0)",
        "Access to 0x7fc97a800100 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7fc97a800000 of size 256 bytes",
    ]
    assert "by thread (1,0,0)" in second.message
    (race,) = parse(report("racecheck_h200.txt")).findings
    assert race.message.splitlines() == [
        "and Write access at race(int *)+0xa0 in san.cu:5 [32 hazards]",
        "and Read access at race(int *)+0xb0 in san.cu:5 [128 hazards]",
    ]


def test_real_clean_report() -> None:
    assert parse(report("memcheck_clean_h200.txt")) == Report(findings=(), total=0, complete=True, remark="")


def test_out_of_bounds_write_is_named_by_kernel_and_line() -> None:
    parsed = parse(report("memcheck_write.txt"))
    first, second = parsed.findings
    assert first.kind == "Invalid __global__ write of size 16 bytes"
    assert (first.kernel, first.location) == ("write_past_end(__nv_bfloat16 *, int)", "/tmp/a folder/kernel.cu:41")
    assert "by thread (0,0,0) in block (0,0,0)" in first.message
    assert "Access at 0x7f5c8e000000 is out of bounds" in first.message
    assert "Host Frame" not in first.message
    assert (second.kernel, second.location) == ("write_past_end(__nv_bfloat16 *, int)", "")


def test_failed_api_call_behind_a_finding_is_a_remark_and_not_counted() -> None:
    parsed = parse(report("memcheck_write.txt"))
    assert parsed.total == 2
    assert parsed.remark.startswith("Program hit cudaErrorLaunchFailure")
    assert parsed.complete


def test_clean_report() -> None:
    assert parse(report("memcheck_clean.txt")) == Report(findings=(), total=0, complete=True, remark="")


def test_failed_api_call_alone_is_no_finding() -> None:
    parsed = parse(report("memcheck_api_error.txt"))
    assert (parsed.findings, parsed.total, parsed.complete) == ((), 0, True)
    assert "cudaErrorInvalidValue" in parsed.remark


def test_leak_is_no_finding_and_names_the_candidates_function() -> None:
    parsed = parse(report("memcheck_leak.txt"))
    assert (parsed.findings, parsed.total, parsed.complete, parsed.remark) == ((), 0, True, "")
    (leak,) = parsed.leaks
    assert (leak.kind, leak.kernel, leak.offset) == (LEAK, "", None)
    assert leak.message == "Leaked 64 bytes at 0x7ff652000000\nHost Frame: run [0x1d41] in kernel.so"
    assert parsed.kept == Kept(allocated_bytes=64, allocations=1)


def test_leaks_beyond_the_print_limit_are_counted_and_no_findings() -> None:
    text = report("memcheck_leak.txt").replace("64 bytes leaked in 1 alloc", "1,920 bytes leaked in 30 alloc")
    parsed = parse(text.replace("SUMMARY: 1 error", "SUMMARY: 30 errors"))
    assert parsed.kept == Kept(allocated_bytes=1920, allocations=30)
    assert (len(parsed.leaks), parsed.total) == (1, 0)


def test_leaks_beside_a_finding_are_not_counted_as_findings() -> None:
    leak = "".join(line for line in report("memcheck_leak.txt").splitlines(keepends=True) if "SUMMARY: 1" not in line)
    text = report("memcheck_write.txt").replace("========= COMPUTE-SANITIZER\n", leak)
    both = parse(text.replace("ERROR SUMMARY: 3", "ERROR SUMMARY: 4"))
    assert (len(both.findings), both.total, both.kept.allocations) == (2, 2, 1)


def test_a_report_that_was_cut_off_counts_the_leaks_that_it_has() -> None:
    text = report("memcheck_leak.txt").partition("========= LEAK SUMMARY")[0]
    assert parse(text).kept == Kept(allocated_bytes=64, allocations=1)


def test_findings_beyond_the_print_limit_are_counted() -> None:
    parsed = parse(report("initcheck_read.txt"))
    (finding,) = parsed.findings
    assert finding.kind == "Uninitialized __global__ memory read of size 4 bytes"
    assert (finding.kernel, finding.location) == ("void reduce<(int)4>(const float *, float *)", "kernel.cu:13")
    assert parsed.total == 239_201


def test_barrier_error() -> None:
    (finding,) = parse(report("synccheck_barrier.txt")).findings
    assert finding.kind == "Barrier error detected. Divergent thread(s) in block."
    assert finding.location == "kernel.cu:31"


def test_race_is_a_finding_with_both_places() -> None:
    parsed = parse(report("racecheck_race.txt"))
    (finding,) = parsed.findings
    assert finding.kind.startswith("Error: Race reported between Write access at sum(int *, int *)+0x70")
    assert finding.message == "and Read access at sum(int *, int *)+0x120 in kernel.cu:19 [508 hazards]"
    assert (finding.kernel, finding.location) == ("sum(int *, int *)", "kernel.cu:14")
    assert (parsed.total, parsed.complete, parsed.remark) == (1, True, "")


def test_hazard_is_a_finding() -> None:
    (finding,) = parse(report("racecheck_hazards.txt")).findings
    assert finding.kind.startswith("Error: Potential WAW hazard")
    assert (finding.kernel, finding.location) == ("sum(int *)", "kernel.cu:18")


def test_racecheck_warning_is_a_remark() -> None:
    parsed = parse(report("racecheck_warning.txt"))
    assert (parsed.findings, parsed.complete) == ((), True)
    assert parsed.remark.startswith("Warning: Race reported")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("internal_error.txt", "Internal Sanitizer Error"),
        ("not_supported.txt", "Device not supported"),
        ("not_started.txt", "Error: Target application terminated before first instrumented API call"),
    ],
)
def test_tool_that_failed_found_nothing_that_counts(name: str, words: str) -> None:
    parsed = parse(report(name))
    assert (parsed.findings, parsed.complete) == ((), False)
    assert parsed.remark.startswith(words)


def test_program_that_ended_with_an_error_was_watched_all_the_same() -> None:
    text = report("memcheck_write.txt").replace(
        "========= Target", "========= Error: process didn't terminate successfully\n========= Target"
    )
    parsed = parse(text)
    assert parsed.complete
    assert len(parsed.findings) == 2


def test_report_that_is_cut_off_keeps_its_findings() -> None:
    text = report("memcheck_write.txt")
    parsed = parse(text[: text.index("=========     by thread (1,0,0)")])
    assert len(parsed.findings) == 2
    assert (parsed.total, parsed.complete) == (2, False)


def test_heading_alone_is_no_finding_yet() -> None:
    assert parse("========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n").findings == ()


def test_text_of_the_program_between_the_lines_is_ignored() -> None:
    text = report("memcheck_clean.txt").replace("\n", "\nPASSED\n Invalid __global__ write of size 4 bytes\n   at k\n")
    assert parse(text) == parse(report("memcheck_clean.txt"))


def test_long_lines_and_many_findings_are_bounded() -> None:
    block = f"========= {'x' * 5000}\n=========     at {'k' * 5000}+0x10 in kernel.cu:1\n=========\n"
    parsed = parse(block * (PRINT_LIMIT + 5))
    assert len(parsed.findings) == PRINT_LIMIT
    assert parsed.total == PRINT_LIMIT + 5
    assert len(parsed.findings[0].kind) == len(parsed.findings[0].kernel) == MAX_LINE_CHARS


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parsed = parse(text)
    assert parsed.total >= len(parsed.findings)


@given(st.integers(min_value=0), st.text(alphabet=st.characters(categories=["L", "P"]), min_size=1))
def test_cutting_never_invents_findings(cut: int, noise: str) -> None:
    text = report("memcheck_write.txt")
    assert len(parse(text[: cut % len(text)] + noise).findings) <= 2


def test_arguments_track_stream_order_for_memcheck_only() -> None:
    memcheck = arguments("memcheck", Path("/r/report"))
    assert memcheck[:2] == ["--tool", "memcheck"]
    assert memcheck[memcheck.index("--log-file") + 1] == "/r/report"
    assert "--track-stream-ordered-races" in memcheck
    assert memcheck[memcheck.index("--leak-check") + 1] == "full"
    for tool in ("initcheck", "synccheck", "racecheck"):
        others = arguments(tool, Path("/r/report"))
        assert not {"--track-stream-ordered-races", "--leak-check"} & set(others)


@pytest.mark.parametrize(
    "line",
    [
        " Leaked , bytes at 0x7f",
        f" Leaked {'9' * 5_000} bytes at 0x7f",
        f" LEAK SUMMARY: {'9' * 5_000} bytes leaked in ,, allocations",
        f" ERROR SUMMARY: {'9' * 5_000} errors",
        f" RACECHECK SUMMARY: {'9' * 5_000} hazards displayed",
    ],
)
def test_numbers_that_are_none_break_nothing(line: str) -> None:
    """Names of functions are the candidate's, and stand in the report: one may hold a line of its own."""
    found = parse(f"========={line}\n=========     frame\n")
    assert not found.complete
    assert found.kept == Kept()
