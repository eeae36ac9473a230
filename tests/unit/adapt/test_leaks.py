import base64
import re

import pytest

from ptxbench.adapt.kernel_code import without_comments
from ptxbench.adapt.leaks import RUN_TOKENS, leaks_in
from tests.unit.factories import ROOT

KERNELS = sorted(ROOT.glob("generated/examples/**/*.cu"))
FAILED = """\
__global__ void gemm(const float* a, float* c) {
  mbar_wait(full + 8 * slot, phase);
  wgmma_commit();
  c[threadIdx.x] = a[0];
}
"""
KERNEL = FAILED.replace(
    "  wgmma_commit();\n",
    "  wgmma_commit();\n"
    "  wgmma_wait_for_the_group<0>();  // a comment that may be said: the accumulators are read next\n"
    "  if (threadIdx.x % 32 == 0) mbar_arrive(empty + 8 * slot + offset, previous ^ 1, ring);\n",
)
HONEST = (
    "The feedback says that every element follows the reference closely, so I look for a step that is missing. In gemm "
    "the line mbar_wait(full + 8 * slot, phase); is right. What I do not see is a wait between the commit and the read "
    "of the accumulators, so I add a wait for all groups there, and let one lane of each warp release the stage. In my "
    "corrected kernel nothing else changes; the working version of the loop stays. a/b is 2/3, at 10:30, and TMA/wgmma "
    "and I/O are fine. The teacher's name is not needed."
).replace(" The teacher's name is not needed.", "")


def leaks(text: str) -> list[str]:
    found = leaks_in(text, kernel=KERNEL, known=("task", FAILED, "feedback"))
    return [leak.kind for leak in found]


def test_an_honest_rationale_has_none():
    assert leaks(HONEST) == []


def test_real_words_around_real_kernels_have_none():
    """A model's own explanation of its repair, from the example run: whoever wrote it had not been given a solution."""
    folder = ROOT / "generated/examples/claude-exchange/turns/claude-exchange-mha_with_lse_d128_causal-h100-v0-t0"
    failed, kernel = ((folder / f"turn{turn}.cu").read_text() for turn in (2, 3))
    text = (
        "The wrong rows (64-191 of each 256) are those of block 1 of the cluster, the wrong columns (64-127) the "
        "second box of V, and LSE is right. So I think the leading offset of the V descriptor is wrong in block 1 "
        "only: in a cluster, shared addresses of block 1 carry the rank in bit 24, and my shortened descriptors did "
        "not mask the address to 18 bits; `addr >> 4` then put that bit into the leading-offset field. I put it back."
    )
    assert leaks_in(text, kernel=kernel, known=(failed,)) == ()
    # A line of the repair that the failed kernel does not have is one.
    others = {line.strip() for line in failed.splitlines()}
    new = next(line for line in without_comments(kernel).split("\n") if line.strip() not in others and len(line) > 60)
    assert [leak.kind for leak in leaks_in(f"{text} {new}", kernel=kernel, known=(failed,))] == ["code"]


@pytest.mark.parametrize(
    "planted",
    [
        "wgmma_wait_for_the_group<0>();",
        "so I write wgmma_wait_for_the_group<0>() there",
        "wgmma_wait_for_the_group < 0 > ( )",
        "if (threadIdx.x % 32\n == 0) mbar_arrive(empty + 8 * slot",
    ],
)
def test_code_of_the_final_kernel_is_caught(planted: str):
    assert leaks(f"{HONEST} {planted}") == ["code"]


def test_code_that_was_laid_out_anew_is_caught():
    code = KERNEL.split("if (")[1].split(", previous")[0]
    tokens = re.findall(r"[\w.]+|\S", code)
    assert len(tokens) > RUN_TOKENS
    assert leaks(f"{HONEST} {'  '.join(tokens[:RUN_TOKENS])}") == ["code"]
    assert leaks(f"{HONEST} {' '.join(tokens[: RUN_TOKENS // 2])}") == []


def test_what_the_student_sees_may_be_quoted():
    assert leaks(f"{HONEST} {FAILED}") == []
    assert leaks_in("wgmma_wait_for_the_group<0>();", kernel=KERNEL, known=("wgmma_wait_for_the_group<0>();",)) == ()


@pytest.mark.parametrize(
    "planted",
    [
        "The corrected kernel uses a wait there.",
        "the fixed version adds a fence",
        "As shown in the final kernel, a wait follows.",
        "Compared with the reference solution I see a missing wait.",
        "The provided solution waits.",
        "I was given the repaired code.",
        "The diff shows a new wait.",
        "k+ waits for all groups.",
        "This is k+.",
        "In hindsight the wait is missing.",
        "the teacher wants a wait",
        "As an AI, I cannot run it.",
        "This rationale explains the wait.",
        "I must not quote the code.",
        "I will not quote the new code.",
        "the **corrected** kernel uses a wait",
        "In the corrected kernel, a wait follows.",
        "The fixed code reads it later.",
        "The repaired kernel simply waits.",
        "The correct version waits for all groups.",
        "The new kernel uses a wait.",
        "The kernel I was handed waits.",
        "The kernel given to me waits.",
        "The answer key says: wait.",
        "The fix that was applied is a wait.",
        "I know from the solution that it waits.",
        "k\u207a waits for all groups.",
        "The engineer then adds a wait.",
    ],
)
def test_signs_of_a_given_solution_are_caught(planted: str):
    assert set(leaks(f"{HONEST} {planted}")) == {"marker"}


@pytest.mark.parametrize(
    "planted",
    [
        "/home/someone/kernel.cu",
        "see /tmp/run/kernel.cu",
        "(~/kernels/kernel.cu)",
        r"C:\kernels\a.cu",
        "https://example.org/a",
        "file:///etc/x",
        "error:/home/someone/kernel.cu",
        "/nix/store/a",
        "/dev/shm/k",
        "../kernels/k",
        "$HOME/kernels/k",
        "C:/kernels/k",
        r"\\\\server\share\k",
        "ssh://host/k",
        "someone@example.org",
        "10.2.3.44",
        "runs/base/turns/turn3.cu",
        "repaired_kernel.cu",
    ],
)
def test_places_are_caught(planted: str):
    assert leaks(f"{HONEST} {planted}") == ["path"]


def test_credentials_are_caught():
    assert leaks(f"{HONEST} sk-test-0123456789abcdef0123456789abcdef") == ["credential"]


ARRIVE = "if (threadIdx.x % 32 == 0) mbar_arrive(empty + 8 * slot + offset, previous ^ 1, ring);"


@pytest.mark.parametrize(
    "planted",
    [
        "`if` `(threadIdx.x % 32 == 0)` `mbar_arrive(empty` `+ 8 * slot + offset,` `previous ^ 1, ring);`",
        "wgmma_wait_for\u200b_the_group<0>();",
        "wgmma_wait_for_the_group\uff1c0\uff1e\uff08\uff09",
        "12: if (threadIdx.x % 32 == 0)\n13: mbar_arrive(empty + 8 *\n14: slot + offset, previous ^ 1",
        "+ if (threadIdx.x % 32 ==\n+   0) mbar_arrive(empty + 8 *\n+ slot + offset, previous",
    ],
    ids=["backticks", "invisible", "full width", "numbered", "diff"],
)
def test_code_in_disguise_is_caught(planted: str):
    assert leaks(f"{HONEST}\n{planted}") == ["code"]


def test_code_with_other_names_is_caught():
    renamed = "if (tid.x % 32 == 0) arrive(mt + 8 * st + off, prev ^ 1, rng);"
    assert leaks(f"{HONEST} {renamed}") == ["code"]
    # What the failed kernel has in the same form may be said with other names too.
    assert leaks_in(f"{HONEST} {renamed}", kernel=KERNEL, known=("task", FAILED, ARRIVE)) == ()
    # Another expression is no quotation.
    assert leaks(f"{HONEST} if (tid.x % 16 == 0) arrive(mt + 4 * st + off, prev ^ 1, rng);") == []


@pytest.mark.parametrize(
    "encoded",
    [
        base64.b64encode(KERNEL.encode()).decode(),
        base64.urlsafe_b64encode(ARRIVE.encode()).decode(),
        base64.encodebytes(KERNEL.encode()).decode(),
        KERNEL.encode().hex(),
    ],
    ids=["base64", "for URLs", "in lines", "hexadecimal"],
)
def test_encoded_code_is_caught(encoded: str):
    assert leaks(f"{HONEST} {encoded}") == ["code"]


def test_long_names_are_not_taken_for_encoded_text():
    names = set(re.findall(r"\w{20,}", "\n".join(path.read_text() for path in KERNELS)))
    assert len(names) > 15
    assert leaks_in(" ".join(names), kernel="", known=()) == ()


def test_a_line_with_a_comment_within_it_is_caught():
    line = "tma_store(out, /* box of the tile */ smem + 64);"
    assert [leak.kind for leak in leaks_in(f"I write {line}", kernel=f"{line}\n", known=())] == ["code"]


@pytest.mark.parametrize(
    "said",
    [
        "The corrected kernel must wait for all groups, and the fixed version should release the stage.",
        "In the reference implementation the scale comes first; mma.sync and cp.async/bulk differ, 1/2 of a/b/c too.",
        "kernel.cu:3 is the commit; B=4, H=48/S=4096; tile.x@64 and sm_90a are fine, and so is 1.2.3.",
        "So the fix is a wait. I see what is missing: sixteen bytes at smem + 8 * slot, as in (a + b) * c - d.",
        "Block k + 1 is loaded while k is multiplied: k+1, k + BK, k++, (k+1) % 4, k plus 1, and k += 64.",
        "I know the phase, and the new value is read from shared memory, not from the earlier one.",
    ],
)
def test_ordinary_thoughts_are_none(said: str):
    found = leaks_in(f"{HONEST} {said}", kernel=KERNEL, known=("task", FAILED, "kernel.cu:3: error"))
    assert found == ()


def test_the_page_quotes_what_is_caught_and_what_is_not():
    page = (ROOT / "docs" / "adaptation-teachers.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| `leak` of a marker"))
    caught, _, spoken = row.partition(", ...")
    for quoted, kinds in ((caught, {"marker"}), (spoken, set())):
        quotes = re.findall(r'"([^"]+)"', quoted)
        assert len(quotes) >= 2
        for quote in quotes:
            said = f"I see that {quote} a wait behind the loop."
            assert {leak.kind for leak in leaks_in(said, kernel="", known=[])} == kinds, quote
