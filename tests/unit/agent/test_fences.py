import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.fences import Block, parse


def test_text_without_fences_is_outside():
    answer = parse("one\n\n    two `three` ```four```\n")
    assert answer.blocks == ()
    assert answer.outside == "one\n\n    two `three` ```four```\n"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```cuda\nx\n```", [Block("cuda", "x\n", True)]),
        ("```\n\n```", [Block("", "\n", True)]),
        ("```\n```", [Block("", "", True)]),
        ("~~~ C++ \nx\n~~~~\n", [Block("c++", "x\n", True)]),
        ("````\n```\nx\n```\n````", [Block("", "```\nx\n```\n", True)]),
        ("```c\n~~~\nx\n```", [Block("c", "~~~\nx\n", True)]),
        ("```cpp\nx", [Block("cpp", "x", False)]),
        ("```cpp\nx\n", [Block("cpp", "x\n", False)]),
        ("```cuda\nx\n```python\ny\n```", [Block("cuda", "x\n", True), Block("python", "y\n", True)]),
        ("1. ```cuda\n   x\n     y\n   ```", [Block("cuda", "x\n  y\n", True)]),
        ("\t```cuda\n\tx\n\t\ty\nz\n\t```", [Block("cuda", "x\n\ty\nz\n", True)]),
        ("> ```cuda\n> x > y\n>\n> ```\nafter", [Block("cuda", "x > y\n\n", True)]),
        ("```cuda title=k.cu\nx\n```", [Block("cuda", "x\n", True)]),
        ("```{.cpp .numberLines}\nx\n```", [Block("cpp", "x\n", True)]),
        ("``` cuda `x`\ny", []),
        (
            "```bash\nls a/*\n```\n```cuda\n/* b */\n```",
            [Block("bash", "ls a/*\n", True), Block("cuda", "/* b */\n", True)],
        ),
    ],
)
def test_blocks(text: str, blocks: list[Block]):
    assert list(parse(text).blocks) == blocks


def test_a_fence_in_a_comment_is_text():
    assert parse("```cuda\n/*\n```\nx\n```\n*/\ny\n```\n").blocks == (Block("cuda", "/*\n```\nx\n```\n*/\ny\n", True),)
    assert parse("```cuda\n// it's `/*`\n```\nx */").blocks == (Block("cuda", "// it's `/*`\n", True),)


def test_a_comment_that_never_ends_does_not_take_the_next_block():
    answer = parse("```cuda\n/* open\n```\nand\n```cuda\n/* x */\n```")
    assert [block.content for block in answer.blocks] == ["/* open\n", "/* x */\n"]


def test_what_is_outside_keeps_its_lines():
    assert parse("a\n```\nx\n```\nb\n").outside == "a\nb\n"


@given(st.text(alphabet='`~ >\n/*"ab', max_size=80))
def test_no_line_is_lost_or_made_up(text: str):
    answer = parse(text)
    inside = sum(block.content.count("\n") for block in answer.blocks)
    assert inside + answer.outside.count("\n") <= text.count("\n") + 1
    assert all(block.closed for block in answer.blocks[:-1])
