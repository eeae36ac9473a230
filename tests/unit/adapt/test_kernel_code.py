from ptxbench.adapt.kernel_code import code_sha256, tokens_of, without_comments

KERNEL = '__global__ void k(int* a) {\n  asm("mov.u32 %0, 1; // one" : "=r"(a[0]));  // set\n}\n'


def test_comments_leave_and_strings_stay():
    assert without_comments('a /* b */ c // d\n"// e"') == 'a   c \n"// e"'


def test_an_instruction_is_one_token():
    assert tokens_of("mma.sync.aligned a, cute::x 0x1f;") == ["mma.sync.aligned", "a", ",", "cute::x", "0x1f", ";"]


def test_comments_and_layout_do_not_make_another_kernel():
    other = "// mended\n" + KERNEL.replace("// set", "/* set it */").replace("{\n", "\n{\n\n").replace("  asm", "\tasm")
    assert other != KERNEL
    assert code_sha256(other) == code_sha256(KERNEL)
    for before, after in (("a[0]", "a[1]"), ("u32", "u16"), ("// one", "// two"), ("int*", "long*")):
        assert code_sha256(KERNEL.replace(before, after)) != code_sha256(KERNEL)
