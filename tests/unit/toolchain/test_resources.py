from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import KernelResources
from ptxbench.toolchain.resources import parse_resources

# As ptxas 13.0 prints it; the second kernel calls a function that is not inlined.
OUTPUT = """ptxas info    : 34 bytes gmem, 16 bytes cmem[3]
ptxas info    : Compiling entry function '_Z4gemmPf' for 'sm_90a'
ptxas info    : Function properties for _Z4gemmPf
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 8 bytes cumulative stack size, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 3.688 ms
ptxas info    : Compiling entry function '_Z4statPf' for 'sm_90a'
ptxas info    : Function properties for _Z4statPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers
ptxas info    : Function properties for _Z6helperf
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def test_each_kernel_has_its_own_numbers():
    assert parse_resources(OUTPUT) == (
        KernelResources(
            kernel="_Z4gemmPf",
            registers=168,
            stack_bytes=8,
            spill_store_bytes=12,
            spill_load_bytes=16,
            static_smem_bytes=1024,
            barriers=16,
        ),
        KernelResources(
            kernel="_Z4statPf",
            registers=10,
            stack_bytes=0,
            spill_store_bytes=0,
            spill_load_bytes=0,
            static_smem_bytes=0,
            barriers=0,
        ),
    )


def test_the_stack_of_a_called_function_is_not_the_kernel_s():
    text = OUTPUT.replace("Function properties for _Z4gemmPf", "Function properties for _Z6helperf")
    assert parse_resources(text)[0].stack_bytes == 0


@given(st.integers(0, 255), st.integers(0, 99999), st.integers(0, 16), st.integers(0, 233472))
def test_numbers_survive(registers: int, stack: int, barriers: int, smem: int):
    text = (
        "ptxas info    : Compiling entry function 'k' for 'sm_100a'\n"
        f"    {stack} bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used {barriers} barriers, {smem} bytes smem\n"
    )
    (kernel,) = parse_resources(text)
    assert (kernel.registers, kernel.stack_bytes) == (registers, stack)
    assert (kernel.barriers, kernel.static_smem_bytes) == (barriers, smem)


@given(st.text(max_size=200))
def test_any_text_is_passed_over(text: str):
    parse_resources(OUTPUT[:100] + text)
