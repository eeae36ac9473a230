import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.agent.cuda_text import advance, examine, export_end
from tests.unit.factories import ROOT

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("generated/reference/*/*/kernel.cu")), ids=lambda path: path.parent.name
)
def test_our_own_kernels_are_whole(path):
    assert examine(path.read_text()).whole


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/fixtures/kernels/*.cu")), ids=lambda path: path.stem)
def test_fixtures_export_run_and_balance(path):
    text = examine(path.read_text())
    assert text.exports == ("run",)
    # One of them is there for the brace that it lacks.
    assert text.open_braces == 0 or path.stem == "compile_error_cpp"


@pytest.mark.parametrize(
    ("source", "exports"),
    [
        (EXPORT, ("run",)),
        ("TVM_FFI_DLL_EXPORT_TYPED_FUNC( run ,\n [](int x) { f(x); })", ("run",)),
        ("TVM_FFI_DLL_EXPORT_TYPED_FUNC(gemm, run);", ("gemm",)),
        ('extern "C" int __tvm_ffi_run(void*, const void*, int, void*) { return 0; }', ("run",)),
        ("// " + EXPORT, ()),
        ("/* " + EXPORT + " */", ()),
        (f'const char* s = "{EXPORT}";', ()),
        (f'auto s = R"({EXPORT})";', ()),
        ("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, ru", ()),
        ("TVM_FFI_DLL_EXPORT_TYPED_FUNC_DOC(run, text)", ()),
        ("TVM_FFI_DLL_EXPORT_TYPED_FUNC", ()),
    ],
)
def test_exports(source: str, exports: tuple[str, ...]):
    found = examine(source)
    assert found.exports == exports
    assert found.exports_run == ("run" in exports)


def test_an_export_inside_a_macro_may_be_of_run():
    found = examine("#define OUT(n) \\\n  TVM_FFI_DLL_EXPORT_TYPED_FUNC(n, n)\nOUT(run)")
    assert found.exports == ("n",)
    assert found.exports_run


@pytest.mark.parametrize(
    ("source", "depth"),
    [
        ("void f() { if (x) { } }", 0),
        ("void f() {", 1),
        ("}}", -1),
        ('char c = \'{\'; const char* s = "{\\"{"; // {\n/* { */ auto r = R"({)";', 0),
        ("int n = 1'000'000; void f() {}", 0),
        ("#define A {\n#define B \\\n {{\nvoid f() {}", 0),
        ("#if X\nvoid f() {\n#elif Y\nvoid g() {\n#else\nvoid h() {\n#endif\n}", 0),
        ("#if X\n#if Y\n{\n#else\n{\n#endif\n#endif\n}", 0),
        ("#endif\n{}", 0),
        ('#ifdef X\nextern "C" {\n#else\n#endif\nint f();\n#ifdef X\n}\n#endif', 0),
        ("#define A /* {{ \\\n {{ */ \\\n {{ // {{ \\\n {{\nvoid f() {}", 0),
    ],
)
def test_braces(source: str, depth: int):
    assert examine(source).open_braces == depth


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("int x;", ""),
        ("/* a", "*/"),
        ("/* a */ b", ""),
        ("// /*", ""),
        ('"/*"', ""),
        ('auto r = R"ab(x', ')ab"'),
        ('auto r = R"ab(x)ab"; /*', "*/"),
        ('fooR"(x', ""),
        ("'\"' /*", "*/"),
        ("1'0 /*", "*/"),
    ],
)
def test_state_after_a_line(line: str, state: str):
    assert advance("", line)[0] == state
    assert examine(line).open_text == (state != "")


def test_where_the_export_ends():
    assert export_end(f"a\n{EXPORT}\nb") == 1
    assert export_end("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run,\n  run\n)\n;") == 2
    assert export_end(f"// {EXPORT}") is None


@given(st.text(alphabet="{}()/*\"'R#\n\\ ab1", max_size=120))
def test_every_text_has_facts(source: str):
    assert examine(source).exports == ()
    assert not examine(source).whole
