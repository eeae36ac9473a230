import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.lexer import Kind
from ptxbench.toolchain.translation import Inclusion, Translation, missing_header, read_translation

PREFIX = (
    '# 0 "kernel.cu"\n# 1 "/cuda/include/cuda_runtime.h" 1\nint runtime;\n# 0 "<command-line>" 2\n# 1 "kernel.cu"\n'
)


def names(translation: Translation) -> list[tuple[str, int]]:
    return [(token.text, token.line) for token in translation.tokens if token.kind is Kind.NAME]


def test_own_text_is_told_from_headers():
    cuda = '# 1 "/cuda/include/cuda.h" 1 3\nb\n# 1 "/usr/x.h" 1 3 4\nc\n# 9 "/cuda/include/cuda.h" 2 3\n'
    text = f'{PREFIX}a\n{cuda}# 3 "kernel.cu" 2\nd\n'
    translation = read_translation(text)
    assert names(translation) == [("a", 1), ("d", 3)]
    assert translation.inclusions == (Inclusion("/cuda/include/cuda.h", 1, 2), Inclusion("/usr/x.h", 2, 0))


def test_a_file_name_set_by_a_directive_hides_nothing():
    translation = read_translation(PREFIX + '# 1 "/cuda/include/cuda.h"\ndlopen\n')
    assert names(translation) == [("dlopen", 1)]


def test_a_forged_return_hides_nothing():
    translation = read_translation(PREFIX + '# 1 "kernel.cu" 2\ndlopen\n')
    assert names(translation) == [("dlopen", 1)]


def test_a_marker_in_a_raw_string_is_text():
    text = PREFIX + 'a = R"(\n# 1 "cuda.h" 1\n# 1 "x" 1\n)"; b\n# 1 "/x.h" 1\n# 6 "kernel.cu" 2\nc\n'
    translation = read_translation(text)
    assert names(translation) == [("a", 1), ("b", 4), ("c", 6)]


def test_a_suffix_after_such_a_raw_string_opens_no_other():
    text = PREFIX + 'a = R"(\n# 1 "x" 1\n)"R"(" b\n# 1 "/x.h" 1\n# 6 "kernel.cu" 2\n'
    assert names(read_translation(text)) == [("a", 1), ("b", 3)]


def test_text_of_another_preprocessor_is_the_machinery_s_fault():
    with pytest.raises(InfrastructureError, match=r"cuda_runtime.h in front of kernel.cu") as caught:
        read_translation("#line 1\nint x;\n")
    assert caught.value.kind == "compiler_crashed"


def test_the_missing_header_is_read_from_the_message():
    output = "kernel.cu:3:10: fatal error: cudnn.h: No such file or directory\n    3 | #include <cudnn.h>\n"
    assert missing_header(output) == "cudnn.h"
    assert missing_header("kernel.cu:3:1: error: cudnn.h") is None
