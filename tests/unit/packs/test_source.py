"""Reading headers: constructs, functions of macros, assembly, identities."""

from pathlib import Path

import pytest

from ptxbench.packs.source import (
    Header,
    as_one_file,
    asm_statements,
    function_code,
    function_sha256,
    read_header,
    render_header,
    strip_comments,
)

TEXT = """#pragma once
#include <cuda.h>
#include "base.cuh"

// Adds.
__device__ __forceinline__ int add(int a, int b = 1) {  // two numbers
  return helper(a) + b;
}
__device__ __forceinline__ int helper(int a) { return a; }

constexpr int kLimit = 7;
enum class Kind { kOne, kTwo };

// Defines one for each number.
#define MAKE(N, ...) \\
  template <int kTimes> \\
  __device__ __forceinline__ void make(int (&d)[N]) { asm volatile("do" #N " %0;" ::"r"(d[0]) : "memory"); } \\
  __device__ __forceinline__ void other(__VA_ARGS__) {}
MAKE(1, int x)
MAKE(2,
     int x, int y)

template <int kSlots>
struct Ring {
  int slot = 0;
  __device__ __forceinline__ void next() { slot = (slot + 1) % kSlots; }
};
"""


@pytest.fixture
def header(tmp_path: Path) -> Header:
    path = tmp_path / "a.cuh"
    path.write_text(TEXT)
    return read_header(path)


def test_what_a_header_defines(header: Header):
    assert header.functions == ("add", "helper", "make", "other", "Ring")
    assert [found.names for found in header.definitions] == [
        *(("add",), ("helper",), ("kLimit",), ("Kind",), ("MAKE",), ("MAKE",), ("MAKE",), ("Ring",))
    ]
    assert (header.system_includes, header.sibling_includes) == (("cuda.h",), ("base.cuh",))


def test_comments_and_groups(header: Header):
    first, second, limit = header.definitions[:3]
    assert (first.comment, first.joined) == ("Adds.", False)
    assert (second.comment, second.joined) == ("", True)
    assert not limit.joined
    assert "//" not in first.code


def test_the_code_of_a_function_that_a_macro_defines_has_the_uses_of_the_macro(header: Header):
    code = function_code(header.definitions, "make")
    assert "MAKE(1, int x)" in code
    assert "int x, int y" in code
    assert "helper" not in code


def test_assembly_statements(header: Header):
    (statement,) = asm_statements(function_code(header.definitions, "make"))
    assert statement.volatile
    assert statement.clobbers_memory
    (pure,) = asm_statements('asm("mov.u32 %0, %1; // )" : "=r"(x) : "r"(f(y)));')
    assert not pure.volatile
    assert not pure.clobbers_memory
    assert pure.text.endswith('"r"(f(y))')


def change(header: Header, old: str, new: str) -> Header:
    assert old in header.text
    header.path.write_text(header.text.replace(old, new, 1))
    return read_header(header.path)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("helper(a) + b", "helper(a) - b", {"add"}),
        ("{ return a; }", "{ return -a; }", {"add", "helper"}),
        ("MAKE(1, int x)", "MAKE(3, int x)", {"make", "other"}),
        ("// two numbers", "// three numbers", set()),
        ("  return helper", "    return helper", set()),
        ("kLimit = 7", "kLimit = 8", set()),
        ("slot + 1", "slot + 2", {"Ring"}),
    ],
)
def test_a_functions_identity_is_its_code_and_that_of_what_it_uses(
    header: Header, old: str, new: str, changed: set[str]
):
    before = {name: function_sha256(header.definitions, name) for name in header.functions}
    after = change(header, old, new)
    assert {name for name in before if function_sha256(after.definitions, name) != before[name]} == changed


def test_names_that_a_macro_pastes_together_belong_to_what_it_defines(tmp_path: Path):
    path = tmp_path / "b.cuh"
    lists = '#define LIST_1 "%0"\n#define LIST_2 LIST_1 ", %1"\n'
    macro = "#define MAKE(N) __device__ __forceinline__ void make(int (&d)[N]) { asm volatile(LIST_##N); }\nMAKE(2)\n"
    path.write_text(lists + macro)
    before = function_sha256(read_header(path).definitions, "make")
    path.write_text((lists + macro).replace("%0", "%9"))
    assert function_sha256(read_header(path).definitions, "make") != before


def test_rendering(header: Header):
    text = render_header(header, set())
    assert text.startswith("### a.cuh\n\n```cuda\n#include <cuda.h>\n\n// Adds.\n")
    assert "pragma" not in text
    assert "base.cuh" not in text
    assert text.endswith("};\n```")
    assert "#include" not in render_header(header, {"cuda.h"})


def test_one_file_of_several_headers(header: Header):
    text = as_one_file([header, header])
    assert text.count("MAKE(1, int x)") == 2
    assert "pragma once" not in text
    assert 'include "base.cuh"' not in text


def test_comments_in_strings_stay():
    assert strip_comments('a("// not one"); // one') == 'a("// not one"); '
    assert strip_comments("a /* b */ c") == "a  c"
