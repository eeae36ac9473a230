"""The compiler's messages, as nvcc 13.0, g++ 13 and ptxas print them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.feedback.compiler_log import Message, read_messages
from ptxbench.models import PastTurn
from ptxbench.records import BuildStatus
from tests.unit.agent.feedback.parts import text_of
from tests.unit.factories import make_record, unbuilt

NVCC = """\
kernel.cu(4): error: identifier "foo" is undefined
    foo(out);
    ^

kernel.cu(6): warning #177-D: variable "unused" was declared but never referenced
    int unused = 3;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

include/vector(12): error: expected a ";"

2 errors detected in the compilation of "kernel.cu".
"""
GNU = """\
In file included from kernel.cu:1:
kernel.cu:3:10: fatal error: nothing.h: No such file or directory
    3 | #include "nothing.h"
      |          ^~~~~~~~~~~
compilation terminated.
"""
PTXAS = """\
ptxas kernel.ptx, line 32; error   : Arguments mismatch for instruction 'wgmma.mma_async'
ptxas kernel.ptx, line 33; error   : Arguments mismatch for instruction 'wgmma.mma_async'
ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes, 0xc000 max)
ptxas fatal   : Ptx assembly aborted due to errors
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : 0 bytes gmem
"""
LINK = """\
ld: kernel.o: in function `run': undefined reference to `helper(int)'
collect2: error: ld returned 1 exit status
"""
SOURCE = "one\ntwo\nthree\nfoo(out);\nfive\nsix\n" + 'asm("wgmma.mma_async.sync");\n' * 3


def failed(log: str, **changes: Any) -> str:
    record = make_record(build=unbuilt(BuildStatus.COMPILE_ERROR, log=log, **changes), evidence=None)
    return text_of(PastTurn(record, SOURCE))


def test_nvcc() -> None:
    assert read_messages(NVCC) == [
        Message("error", 'identifier "foo" is undefined', 4),
        Message("error", 'include/vector(12): expected a ";"'),
    ]


def test_gnu() -> None:
    assert read_messages(GNU) == [Message("error", "nothing.h: No such file or directory", 3)]


def test_ptxas_says_equal_things_once() -> None:
    assert [(message.kind, message.text[:45]) for message in read_messages(PTXAS)] == [
        ("error", "ptxas: Arguments mismatch for instruction 'wg"),
        ("error", "ptxas: Entry function '_Z1kPf' uses too much "),
        ("remark", "ptxas: (C7508) Potential Performance Loss: 's"),
    ]


def test_linker() -> None:
    (message,) = read_messages(LINK)
    assert "undefined reference to `helper(int)'" in message.text


def test_the_line_is_quoted_with_two_around_it() -> None:
    text = failed(NVCC)
    assert "does not compile for sm_90a: 2 errors" in text
    assert "      2 | two\n" in text
    assert ">    4 | foo(out);" in text
    assert "     6 | six" in text


def test_a_ptx_message_points_at_the_instruction_in_the_source() -> None:
    text = failed(PTXAS)
    assert '7 | asm("wgmma.mma_async.sync");' in text
    assert "and 1 more lines with it" in text
    assert "Static shared memory ends at 48 KB" in text
    assert "(C7508)" in text


def test_many_errors_are_counted() -> None:
    log = "".join(f'kernel.cu({line}): error: identifier "v{line}" is undefined\n' for line in range(1, 40))
    text = failed(log)
    assert "39 errors" in text
    assert "33 more errors" in text
    assert '"v7"' not in text
    assert "1 more error\n" in failed("".join(log.splitlines(keepends=True)[:7]))


def test_a_log_that_was_cut_says_so_and_counts_no_errors_that_are_not_there() -> None:
    text = failed(NVCC, log_truncated=True)
    assert "a log too long to keep" in text
    assert "0 more" not in text


def test_a_log_without_an_error_is_quoted() -> None:
    assert "cicc crashed on this source" in failed("cicc crashed on this source (SIGSEGV), and again\n")
    assert "last words: something odd" in failed("something odd\n")


def test_time_limit() -> None:
    build = unbuilt(BuildStatus.COMPILE_ERROR, log="compilation stopped after 180 s, its time limit\n", timed_out=True)
    text = text_of(PastTurn(make_record(build=build, evidence=None), SOURCE))
    assert "time limit" in text
    assert "unroll less" in text


@given(st.text(max_size=400) | st.lists(st.sampled_from((NVCC + GNU + PTXAS + LINK).splitlines())).map("\n".join))
def test_any_log_is_read(log: str) -> None:
    for message in read_messages(log):
        assert len(message.text) <= 800
        assert "\n" not in message.text


@pytest.mark.parametrize("kind", ["error", "warning"])
def test_paths_in_messages_do_not_pass(kind: str) -> None:
    (message,) = read_messages(f"kernel.cu(1): {kind}: cannot read /home/me/secret/x.h\n")
    assert message.text == "cannot read x.h"
