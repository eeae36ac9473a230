from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.records import KernelSass
from ptxbench.toolchain.sass import parse_sass

# As nvdisasm -c prints it.
DISASSEMBLY = """
\t.target\tsm_90a
//--------------------- .text._Z4gemmPf --------------------------
\t.section\t.text._Z4gemmPf,"ax",@progbits
\t.align\t128
.text._Z4gemmPf:
        .type           _Z4gemmPf,@function
_Z4gemmPf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/             @!UP0 UTMALDG.2D.MULTICAST [UR8], [UR4], UR6, desc[UR10] ;
        /*0030*/               @P1 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;  /* 0x01e00000041879f0 */
                                                                                          /* 0x000fe20008701818 */
.L_x_0:
        /*0040*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0050*/                   UTMACMDFLUSH ;
        /*0060*/         {         MOV R0, R1 ;
        /*0068*/               @P0 EXIT }
        /*10a0*/                   R2UR.FILL UR4, R3 ;
.L_x_1:
.text.helper:
        /*0000*/                   RET.REL.NODEC R4 `(_Z4gemmPf) ;
//--------------------- .nv.info --------------------------
        /*0000*/ \t.byte\t0x04, 0x2f
"""


def test_opcodes_by_function():
    gemm, helper = parse_sass(DISASSEMBLY)
    assert gemm == KernelSass(
        kernel="_Z4gemmPf",
        opcodes={
            "EXIT": 1,
            "HGMMA": 2,
            "LDC": 1,
            "LDS": 1,
            "MOV": 1,
            "R2UR": 1,
            "UTMACMDFLUSH": 1,
            "UTMALDG": 1,
        },
    )
    assert helper == KernelSass(kernel="helper", opcodes={"RET": 1})


def test_control_codes_and_directives_are_no_instructions():
    text = ".text.k:\n        /*0008*/                /* 0x001fc400fe2007f6 */\n        /*0010*/ .word 3\n"
    assert parse_sass(text) == (KernelSass(kernel="k", opcodes={}),)


def test_code_outside_a_function_is_not_counted():
    assert parse_sass("        /*0000*/                   EXIT ;\n") == ()


opcodes = st.from_regex(r"[A-Z][A-Z0-9_]{1,12}", fullmatch=True)
modifiers = st.from_regex(r"(\.[A-Za-z0-9_]{1,8}){0,4}", fullmatch=True)
predicates = st.sampled_from(["", "@P0 ", "@!P6 ", "@!PT ", "@UP1 ", "@!UPT "])
operands = st.sampled_from(["", " R4, R2, 0x4", " [UR8+0x10], desc[UR4][R2.64]", " `(.L_x_3)", " c[0x0][0x28]"])
endings = st.sampled_from([" ;", " }", " ;  /* 0x000fe20008701818 */", " &req={0} ?trans1;"])


@settings(max_examples=40)
@given(st.lists(st.tuples(predicates, opcodes, modifiers, operands, endings), max_size=20))
def test_every_instruction_is_counted_once(lines: list[tuple[str, ...]]):
    text = ".text.kernel:\n" + "".join(
        f"        /*{16 * i:04x}*/    {predicate}{opcode}{modifier}{operand}{ending}\n"
        for i, (predicate, opcode, modifier, operand, ending) in enumerate(lines)
    )
    (kernel,) = parse_sass(text)
    expected: dict[str, int] = {}
    for _, opcode, _, _, _ in lines:
        expected[opcode] = expected.get(opcode, 0) + 1
    assert kernel.opcodes == expected


@given(st.text(max_size=300))
def test_any_text_is_passed_over(text: str):
    for kernel in parse_sass(".text.k:\n" + text):
        assert all(count > 0 for count in kernel.opcodes.values())
