from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records.build import MAX_LOG_CHARS
from ptxbench.toolchain.logs import PathScrubber, bounded, without_resources

SCRUBBER = PathScrubber([(Path("/build"), ""), (Path("/opt/cuda/bin/../include"), "cuda"), (Path("/opt"), "opt")])


def test_known_folders_get_their_names():
    assert SCRUBBER.scrub("/build/kernel.cu(3): error") == "kernel.cu(3): error"
    assert SCRUBBER.scrub("/opt/cuda/bin/..//include/crt/x.h:1") == "cuda/crt/x.h:1"
    assert SCRUBBER.scrub("(/opt/other/y.h)") == "(opt/other/y.h)"


def test_unknown_folders_vanish():
    assert SCRUBBER.scrub("In file included from /home/someone/secret/z.h:1:") == "In file included from z.h:1:"


def test_code_stays_as_it_is():
    code = "x = a/b/c; // see /* y */ light/tvm/ffi/error.h <cuda/barrier>"
    assert SCRUBBER.scrub(code) == code


def test_the_resource_report_goes_and_warnings_stay():
    log = (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
        "ptxas info    : Function properties for k\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 10 registers\n"
        "ptxas warning : Registers are spilled to local memory\n"
    )
    assert without_resources(log) == "ptxas warning : Registers are spilled to local memory\n"


def test_numbered_remarks_stay():
    remark = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine it.\n"
    assert without_resources(f"ptxas info    : 0 bytes gmem\n{remark}ptxas info    : Used 10 registers\n") == remark


@given(st.integers(0, 3 * MAX_LOG_CHARS))
def test_a_long_log_keeps_both_ends(length: int):
    text = "<" + "x" * length + ">"
    kept, truncated = bounded(text)
    assert len(kept) <= MAX_LOG_CHARS
    assert truncated == (len(text) > MAX_LOG_CHARS)
    assert kept[0] == "<"
    assert kept[-1] == ">"
