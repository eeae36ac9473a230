"""What comes out of answers as models write them: the table of tests/data/replies, and every dialect of fences."""

import hashlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from ptxbench.agent.extraction import EXPECTED, extract
from ptxbench.records import Reply

REPLIES = Path(__file__).parents[2] / "data" / "replies"
TABLE: dict[str, dict[str, Any]] = yaml.safe_load((REPLIES / "expected.yaml").read_text())

KERNEL = """// a kernel
#include <cuda_runtime.h>
__global__ void k(float* x) {
  if (x) { x[0] = '}' + 1'000; }
}
static void run(tvm::ffi::TensorView x) { k<<<1, 1>>>(static_cast<float*>(x.data_ptr())); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""


def reply(text: str, ended: Any = "stop", **more: Any) -> Reply:
    return Reply(text=text, ended=ended, finish_reason=ended, latency_s=1.0, model="m", **more)


def read(name: str) -> str:
    return (REPLIES / name).read_bytes().decode()


def test_the_table_names_every_reply():
    assert sorted(path.stem for path in REPLIES.glob("*.txt")) == sorted(TABLE)
    assert len(TABLE) >= 30


@pytest.mark.parametrize("name", TABLE)
def test_reply(name: str):
    row = TABLE[name]
    source = read(row["file"]) if "file" in row else None
    found = extract(reply(read(f"{name}.txt"), row["ended"], reasoning=row.get("reasoning", ""), source=source))
    if "error" in row:
        assert found.source is None
        assert re.search(row["error"], found.error)
        assert found.error.endswith(EXPECTED)
        assert found.how == ""
    else:
        assert found.error == ""
        assert found.source is not None
        assert found.source.split("\n")[0] == row["marker"]
        assert hashlib.sha256(found.source.encode()).hexdigest() == row["sha256"]
        assert found.how == row["how"]


# Lines of source: anything that keeps the kernel whole, indented or not, with text that looks like markup.
LINES = st.sampled_from(
    [
        "",
        "  ",
        "\t// tab and trailing blanks  ",
        "// it's > than `x` and ~ that",
        'const char* s = "{ // not a comment /* \\" ";',
        'const char* r = R"x(\n```\n}\n)x";',
        "/* ``` */",
        "#define ODD(x) { x",
        "int a = 1'000'000; // '",
        "// - a list\n// 1. another",
        "    deeply(indented);",
        "int b = x ? '\"' : '\\'';",
        "/* a comment\n~~~\n> quoted\n*/",
    ]
)
FENCES = st.sampled_from(["```", "````", "~~~", "~~~~~", "`````"])
TAGS = st.sampled_from(
    ["cuda", "c++", "cpp", "cu", "C", "CUDA", "Cpp", "", "cuda title=kernel.cu", "{.cuda}", "cpp:kernel.cu"]
)
PREFIXES = st.sampled_from(["", "  ", "   ", "\t", "> ", ">> ", "      "])
PROSE = st.sampled_from(
    ["", "Here it is.\n", "It's `fast`:\n\n", "- one\n- two\n", "```bash\nls build/*\n```\n", "`x` and ```y```\n"]
)


@given(
    st.lists(LINES, max_size=6), FENCES, TAGS, PREFIXES, PROSE, PROSE, st.sampled_from(["", " ", "  \t"]), st.booleans()
)
def test_a_kernel_in_any_fence_comes_back(
    lines: list[str], fence: str, tag: str, prefix: str, before: str, after: str, blanks: str, crlf: bool
):
    source = "".join(f"{line}\n" for line in lines) + KERNEL
    # A fence of the block's own kind inside a raw string or comment is the next test's.
    assume(not any(line.startswith(fence[:3]) for line in source.split("\n")) or len(fence) > 3)
    body = "".join(f"{prefix}{line}\n" for line in source.split("\n")[:-1])
    text = f"{before}{prefix}{fence}{tag}{blanks}\n{body}{prefix}{fence}{blanks}\n{after}"
    found = extract(reply(text.replace("\n", "\r\n") if crlf else text))
    assert found.source == source
    assert found.error == ""


@given(st.lists(LINES, max_size=8), FENCES, st.booleans())
def test_a_fence_inside_a_comment_or_raw_string_does_not_end_the_block(lines: list[str], fence: str, closed: bool):
    source = "".join(f"{line}\n" for line in lines) + KERNEL
    text = f"{fence}cuda\n{source}" + (f"{fence}\n" if closed else "")
    assert extract(reply(text)).source == source


@given(st.text(alphabet="`~> \n\tcuda{}()/*\"'#R<think>.\\", max_size=200), st.sampled_from(["stop", "output_limit"]))
def test_every_text_has_an_answer(text: str, ended: str):
    found = extract(reply(text, ended))
    assert (found.source is None) == bool(found.error)


@given(st.integers(min_value=1, max_value=len(KERNEL) - 2))
def test_a_kernel_cut_at_the_limit_is_no_kernel(length: int):
    found = extract(reply(f"```cuda\n{KERNEL[:length]}", "output_limit"))
    assert found.source is None
    assert "cut at the output limit" in found.error


def test_what_the_provider_cut_is_not_a_kernel_even_where_it_happens_to_balance():
    assert extract(reply(f"```cuda\n{KERNEL}", "output_limit")).source is None
    assert extract(reply(f"```cuda\n{KERNEL}```", "output_limit")).source == KERNEL
    assert extract(reply(KERNEL, "output_limit")).source is None
    assert extract(reply(f"{KERNEL}\nThis kernel", "output_limit")).source == KERNEL


def test_nothing_of_a_source_is_changed_but_its_line_ends():
    odd = f"// \u00e9\u00a0\ufeff &lt; \\  \n{KERNEL}\n\n"
    assert extract(reply(f"```cuda\n{odd}```".replace("\n", "\r\n"))).source == odd


def test_reasoning_is_never_looked_at_for_code():
    inside = f"```cuda\n{KERNEL}```"
    assert extract(reply("no code", reasoning=inside)).source is None
    for tag in ("think", "thinking", "reasoning", "Thought"):
        assert extract(reply(f"<{tag}>\n{inside}\n</{tag}>\nI give up.")).source is None
    assert extract(reply(f"[THINK]{inside}[/THINK]\nI give up.")).source is None


def test_a_tag_of_reasoning_inside_a_line_is_no_reasoning():
    text = f"I use the `<think>` tag.\n```cuda\n{KERNEL}```"
    assert extract(reply(text)).source == KERNEL


def test_an_earlier_kernel_stands_when_the_last_one_is_a_patch_or_elided():
    patch = "```diff\n@@ -1 +1 @@\n-a\n+b\n```\n"
    elided = KERNEL.replace("  if (x)", "  // ... existing code ...\n  if (x)")
    for last in (patch, f"```cuda\n{elided}```\n"):
        assert extract(reply(f"```cuda\n{KERNEL}```\n{last}")).source == KERNEL


@pytest.mark.parametrize(
    "line",
    [
        "// ... rest unchanged ...",
        "/* ... existing code ... */",
        "// [... same as before ...]",
        "...",
        "  …",
        "// … (omitted for brevity)",
        "// The rest of the code is unchanged from the previous turn.",
        "// rest of kernel same as turn 2",
    ],
)
def test_elisions(line: str):
    found = extract(reply(f"```cuda\n{KERNEL.replace('  if (x)', line + chr(10) + '  if (x)')}```"))
    assert found.source is None
    assert "parts left out" in found.error


@pytest.mark.parametrize(
    "line",
    [
        "// rest of the warps wait here, unchanged",
        "// ... and 7: the second pass",
        "/* second pass: same as above, for V */",
        "// wait for the remaining stages...",
        "f(a, ...);",
        "// the previous kernel wrote delta",
        "// unchanged since turn 1",
    ],
)
def test_honest_comments_are_no_elisions(line: str):
    source = KERNEL.replace("  if (x)", line + "\n  if (x)")
    assert extract(reply(f"```cuda\n{source}```")).source == source


HOSTILE = [
    "```cuda\n/*\n" * 20_000,
    "```\n`\n~~~\n" * 20_000,
    "<think>\n" * 50_000,
    "</think>" * 20_000,
    "<think></think>\n" * 10_000,
    "> " * 50_000,
    "--- a\n" * 50_000,
    "```cuda\n" + "{(" * 50_000,
    "```cuda\n" + "TVM_FFI_DLL_EXPORT_TYPED_FUNC(" * 5_000,
    "```\n// ..." + " rest of the" * 5_000,
    "\n".join("`" * count for count in range(400, 3, -1)) + "\nx",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:16]))
def test_a_hostile_answer_takes_no_long_time(text: str):
    started = time.process_time()
    assert extract(reply(text)).source is None
    assert time.process_time() - started < 10
