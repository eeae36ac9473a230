"""Names as nvcc 13.0 mangles them and as demanglers and Nsight Compute print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.verdict.kernel_names import is_kernel_of

TEMPLATE = "_ZN2ns6kernelILi4EEEvNS_3FooIXT_EfE1PEPf"
ANONYMOUS = "_ZN33_GLOBAL__N__65668509_4_k_cu_cname6anon_tIfEEvPT_"
LAMBDA = "_Z5applyIZ2goPfEUlfE_EvT_S0_"


@pytest.mark.parametrize(
    ("shown", "mangled"),
    [
        ("_Z4statPf", "_Z4statPf"),
        ("stat(float *)", "_Z4statPf"),
        ("stat", "_Z4statPf"),
        ("cname", "cname"),
        ("cname(float *)", "cname"),
        ("void ns::kernel<(int)4>(ns::Foo<T1, float>::P, float *)", TEMPLATE),
        ("void ns::kernel<4>(ns::Foo<4, float>::P, float*)", TEMPLATE),
        ("kernel", TEMPLATE),
        ("void (anonymous namespace)::anon_t<float>(float*)", ANONYMOUS),
        ("void <unnamed>::anon_t<float>(T1 *)", ANONYMOUS),
        ("<unnamed>::anon(float *)", "_ZN41_GLOBAL__N__d5ad5f4b_9_kernel_cu_0eb2ba414anonEPf"),
        ("void ns2::Tile<(int)64, (int)8>::run(float *)", "_ZN3ns24TileILi64ELi8EE3runEPf"),
        ("void apply<go(float*)::{lambda(float)#1}>(go(float*)::{lambda(float)#1}, float*)", LAMBDA),
    ],
)
def test_the_same_kernel_by_other_tools(shown: str, mangled: str) -> None:
    assert is_kernel_of(shown, ["_Z5otherv", mangled])


@pytest.mark.parametrize(
    ("shown", "mangled"),
    [
        ("_Z4statPd", "_Z4statPf"),
        ("kernel", "_Z16kernel_of_othersv"),
        ("ern", TEMPLATE),
        ("other::kernel<4>(float*)", TEMPLATE),
        ("kernel::ns", TEMPLATE),
        ("void cutlass::device_kernel<A>(T1::Params)", TEMPLATE),
        ("cname2", "cname"),
        ("ns::cname", "cname"),
        ("", "_Z4statPf"),
        ("void <unnamed>", "_Z4statPf"),
    ],
)
def test_another_kernel(shown: str, mangled: str) -> None:
    assert not is_kernel_of(shown, [mangled])


identifiers = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)


@given(st.lists(identifiers, min_size=1, max_size=3))
def test_nested_names_match_their_own_mangling(parts: list[str]) -> None:
    mangled = "_ZN" + "".join(f"{len(part)}{part}" for part in parts) + "EPf"
    assert is_kernel_of("::".join(parts) + "(float *)", [mangled])


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_breaks_the_comparison(shown: str, mangled: str) -> None:
    assert is_kernel_of(shown, [mangled]) in (True, False)
    assert not is_kernel_of(shown, [])
