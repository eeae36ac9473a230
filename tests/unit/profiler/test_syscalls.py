"""The filter of system calls, run by an interpreter of the few instructions it has, for both architectures."""

import errno
import re
import struct
from pathlib import Path

import pytest

from ptxbench.profiler.sandbox import syscalls
from ptxbench.profiler.sandbox.syscalls import REFUSED, program

PID = 1234
ALLOWED = 0
ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))
COLUMNS = {"x86_64": 0, "aarch64": 1}
MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS


def result(machine: str, number: int, *arguments: int, arch: int | None = None, tool: bool = False) -> int:
    """The error number that a call gets; 0 where it is allowed. As in linux/filter.h and struct seccomp_data."""
    data = struct.pack("<IIQ6Q", number, arch or ARCHITECTURES[machine], 0, *(arguments + (0,) * 6)[:6])
    code = list(struct.iter_unpack("<HBBI", program(machine, PID, tool=tool)))
    assert len(code) <= MAX_INSTRUCTIONS
    accumulator = at = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return ALLOWED if value == 0x7FFF_0000 else value & 0xFFFF
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


def numbers(machine: str, table: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    found = {name: pair[COLUMNS[machine]] for name, pair in table.items()}
    return {name: number for name, number in found.items() if number is not None}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_refused_call_is_refused(machine: str) -> None:
    table = REFUSED | syscalls._PROGRAMS | syscalls._LEAVING_THE_GROUP | syscalls._FORKS
    assert {name: result(machine, number) for name, number in numbers(machine, table).items()} == dict.fromkeys(
        numbers(machine, table), errno.EPERM
    )


@pytest.mark.parametrize(
    ("machine", "allowed"),
    [
        ("x86_64", (0, 1, 9, 10, 11, 16, 39, 202, 230, 231, 257, 302, 319)),
        ("aarch64", (62, 63, 64, 29, 56, 222, 226, 98, 172, 94, 115, 261, 279)),
    ],
)
def test_reading_mapping_waiting_and_the_like_are_allowed(machine: str, allowed: tuple[int, ...]) -> None:
    assert {number: result(machine, number) for number in allowed} == dict.fromkeys(allowed, ALLOWED)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_threads_but_no_processes(machine: str) -> None:
    column = COLUMNS[machine]
    clone, clone3 = syscalls._CLONE[column], syscalls._CLONE3[column]
    assert result(machine, clone, 0x003D_0F00) == ALLOWED  # what pthread_create asks for
    assert result(machine, clone, 17) == errno.EPERM  # what fork asks for
    assert result(machine, clone, 0x1000_0000 | 17) == errno.EPERM
    assert result(machine, clone3) == errno.ENOSYS


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_signals_and_memory_are_the_process_own(machine: str) -> None:
    for number in (pair[COLUMNS[machine]] for pair in (syscalls._SIGNALS | syscalls._MEMORY).values()):
        assert result(machine, number, PID, 6) == ALLOWED
        for other in (0, 1, PID + 1, (1 << 32) - 1, (1 << 64) - PID):
            assert result(machine, number, other, 9) == errno.EPERM


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_sockets_stay_on_this_machine(machine: str) -> None:
    for number in (pair[COLUMNS[machine]] for pair in syscalls._SOCKETS.values()):
        assert {family: result(machine, number, family) for family in (1, 16)} == {1: ALLOWED, 16: ALLOWED}
        assert {result(machine, number, family) for family in (2, 10, 17, 40)} == {errno.EPERM}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_keeps_the_process_in_hand_cannot_be_undone(machine: str) -> None:
    prctl = syscalls._PRCTL[COLUMNS[machine]]
    assert {option: result(machine, prctl, option) for option in (1, 4, 36)} == dict.fromkeys((1, 4, 36), errno.EPERM)
    assert result(machine, prctl, 15) == ALLOWED  # PR_SET_NAME


def test_calls_of_another_architecture_are_refused() -> None:
    assert result("x86_64", 39, arch=0x4000_0003) == errno.EPERM  # i386
    assert result("x86_64", 39 | 0x4000_0000) == errno.EPERM  # x32
    assert result("aarch64", 172, arch=0x4000_0028) == errno.EPERM  # 32-bit ARM


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_tool_may_start_programs_and_count_events_and_no_more(machine: str) -> None:
    column = COLUMNS[machine]
    freed = {**syscalls._PROGRAMS, "perf_event_open": REFUSED["perf_event_open"]}
    assert {result(machine, number, tool=True) for number in numbers(machine, freed).values()} == {ALLOWED}
    assert result(machine, syscalls._CLONE[column], 17, tool=True) == ALLOWED
    assert result(machine, syscalls._SOCKETS["socket"][column], 2, tool=True) == ALLOWED
    kept = {name: pair for name, pair in REFUSED.items() if name != "perf_event_open"}
    assert {result(machine, number, tool=True) for number in numbers(machine, kept).values()} == {errno.EPERM}
    assert result(machine, syscalls._MEMORY["process_vm_readv"][column], PID + 1, tool=True) == errno.EPERM


def test_a_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    with pytest.raises(OSError, match="the system calls of riscv64 are not known here"):
        program("riscv64", PID)


@pytest.mark.parametrize("column", [0, 1])
def test_numbers_are_those_of_the_headers(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip(f"no {HEADERS[column]}")
    text = HEADERS[column].read_text()
    found = {name: int(number) for name, number in re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", text)}
    own = syscalls._SIGNALS | syscalls._SOCKETS | syscalls._MEMORY
    table = {**REFUSED, **syscalls._PROGRAMS, **syscalls._LEAVING_THE_GROUP, **syscalls._FORKS, **own}
    named = {name: pair[column] for name, pair in table.items()}
    named |= {"clone": syscalls._CLONE[column], "clone3": syscalls._CLONE3[column], "prctl": syscalls._PRCTL[column]}
    # Headers may be older than a call.
    assert {name: found.get(name) for name in named if name in found or named[name] is None} == {
        name: number for name, number in named.items() if name in found or number is None
    }
