import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptxbench.toolchain.directives import line_markers
from ptxbench.toolchain.discovery import Tools

MARKED = [
    '# 1 "cuda.h" 1',
    '  #1"x"',
    '%: 1 "x" 1',
    '/* a */ # /* b\n */ 1 "x" 1',
    '#\\\n1 "x" 1',
    '# \\  \n 1\\\n2 "x" 1',
    'int a; /* " */\n# 1 "x" 1',
    'const char* a = "/*";\n# 1 "x" 1\n"*/"',
    'char c = \'"\';\n# 1 "x" 1\n',
    "int n = 1'000;\n# 1 \"x\" 1\n'",
    'auto s = R"(\\\n)";\n# 1 "x" 1',
    'auto s = R"(a)\\\n" /*)";\n# 1 "x" 1\n/* */',
    'auto s = u8R"x()" )x";\n# 1 R"(x)" 1',
    'FOOR"(";\n# 1 "x" 1\n")"',
    '"unterminated\n# 1 "x" 1',
    '// comment\n# 1 "x" 1',
    'auto s = ""R"("\n# 1 "x" 1\n")";',
    'int a$R"(";\n# 1 "x" 1\n")"',
    '#if 0\n#define X R"(\n#endif\n# 1 "x" 1',
    'int a;\n\0#\0 1 "x" 1',
    '\ufeff# 1 "x" 1',
]

UNMARKED = [
    '#line 3 "x.h"',
    "#include <cuda.h>\n#pragma unroll 4\n#if 1\n#endif",
    '/*\n# 1 "x" 1\n*/',
    '// \\\n# 1 "x" 1',
    'auto s = R"(\n# 1 "x" 1\n)";',
    'auto s = R"(a)\\\n" )" /* )" */;',
    'auto s = "\\\n# 1 \\"x\\" 1";',
    "int a; # 1",
    "#define S(x) #x\n#define T S(1)",
    "x = a ## 1;",
]


@pytest.mark.parametrize("source", MARKED)
def test_markers_are_found(source: str):
    assert len(line_markers(source)) == 1


@pytest.mark.parametrize("source", UNMARKED)
def test_other_text_is_no_marker(source: str):
    assert line_markers(source) == []


def test_the_line_is_that_of_the_source():
    assert line_markers('int a; \\\n\n/* \n */\n# 7 "x" 1\n') == [5]


@pytest.fixture(scope="session")
def preprocessor(tools: Tools) -> str:
    """g++'s own program, without its driver in front of it."""
    argv = [str(tools.host.path), "-print-prog-name=cc1plus"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def preprocessed(preprocessor: str, folder: Path, source: str) -> str:
    (folder / "unit.cpp").write_text(source)
    argv = [preprocessor, "-quiet", "-std=c++17", "-E", "-w", "unit.cpp"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("source", MARKED)
def test_the_preprocessor_obeys_what_is_found(preprocessor: str, tmp_path: Path, source: str):
    source = source.replace('"x"', '"forged"').replace('R"(x)"', '"forged"').replace("cuda.h", "forged")
    assert any(
        line.startswith("# ") and '"forged"' in line
        for line in preprocessed(preprocessor, tmp_path, source).splitlines()
    )


pieces = st.sampled_from(
    [
        *('# 1 "forged" 1', "\n", "\n", "\\\n", "\\ \n", '"', "'", "/*", "*/", "//", 'R"(', ')"', 'R"x(', ')x"'),
        *(
            "#if 0\n",
            "\n#endif\n",
            "\n#define X ",
            "\n#define R\n",
            "a",
            "1",
            " ",
            "#",
            "%:",
            "u8",
            "$",
            "\u0301",
            "X",
            "F(",
        ),
    ]
)


@settings(max_examples=150)
@given(st.lists(pieces, max_size=14).map("".join))
@example('R"(\\\n)" /*\n# 1 "forged" 1\n*/')
@example('#R"x(\n# 1 "forged" 1')
@example('a = R"(\\\n)";\n# 1 "forged" 1\n')
def test_no_source_forges_an_inclusion_unnoticed(
    preprocessor: str, tmp_path_factory: pytest.TempPathFactory, source: str
):
    text = preprocessed(preprocessor, tmp_path_factory.mktemp("fuzz"), source + "\n__FILE__ END\n")
    if '"forged" END' in text:
        assert line_markers(source)
