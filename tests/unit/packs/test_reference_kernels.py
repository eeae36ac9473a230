"""Reference kernels that claim to use the pack's functions alone: each must be the pack's to the letter, and no other.

Both sides go through the preprocessor, so that a kernel may write out what a macro of the pack defines for one rank or
one width; comments, layout and the places where a string is broken do not count.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ptxbench.packs.pack import open_pack
from ptxbench.packs.source import as_one_file, read_header
from tests.unit.factories import ROOT

CLAIM = "All inline PTX is in functions of knowledge_packs/h100"
"""In a kernel's header comment."""

KERNELS = sorted((ROOT / "generated" / "reference" / "h100").glob("*/kernel.cu"))

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|\S')
_ATTRIBUTES = {"__launch_bounds__", "__cluster_dims__", "__align__", "alignas"}
_ASSEMBLY = {"asm", "__asm__", "__asm"}


class Construct(NamedTuple):
    """A function or type at namespace scope, as tokens."""

    name: str
    tokens: tuple[str, ...]


def constructs(source: str) -> list[Construct]:
    """All constructs of a source that have a body, macros expanded."""
    found, head, body, depth = [], list[str](), list[str](), 0
    for token in _tokens(source):
        if depth == 0 and (token in (";", "}") or (token == "{" and "namespace" in head)):
            head = []
        else:
            depth += (token == "{") - (token == "}")
            (body if body or token == "{" else head).append(token)
            if body and depth == 0:
                found.append(Construct(_name(head), (*head, *body)))
                head, body = [], []
    return found


def deviations(kernel: str, pack: Iterable[Construct]) -> list[str]:
    """Where a kernel departs from its claim."""
    known: dict[str, set[tuple[str, ...]]] = {}
    for construct in pack:
        known.setdefault(construct.name, set()).add(construct.tokens)
    own = constructs(kernel)
    found = []
    for name, tokens in own:
        if name in known and tokens not in known[name]:
            found.append(f"{name} differs from the pack's")
        elif name not in known and _ASSEMBLY & set(tokens):
            found.append(f"{name} holds assembly of its own")
        elif name in known and not any(name in other.tokens for other in own if other.name != name):
            found.append(f"{name} is not used")
    return found


def _name(head: list[str]) -> str:
    """The word before the parameters; of a type the word after ``struct`` and the like."""
    for word, after in pairwise(head):
        if after == "(" and word.isidentifier() and word not in _ATTRIBUTES:
            return word
        if word in ("struct", "class", "union") and after.isidentifier() and "(" not in head:
            return after
    return " ".join(head)


def _tokens(source: str) -> Iterator[str]:
    """Tokens after the preprocessor, neighbouring strings joined."""
    lines = (line for line in source.splitlines() if not re.match(r"\s*#\s*(?:include|pragma\s+once)\b", line))
    text = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"], input="\n".join(lines), capture_output=True, text=True, check=True
    ).stdout
    string = ""
    for token in _TOKEN.findall(text):
        if token.startswith('"'):
            string = string[:-1] + token[1:] if string else token
            continue
        if string:
            yield string
        string = ""
        yield token


@cache
def pack() -> tuple[Construct, ...]:
    return tuple(constructs(as_one_file(read_header(path) for path in open_pack(ROOT, "h100").headers())))


def is_pack_only(path: Path) -> bool:
    head = path.read_text().partition("#include")[0]
    return CLAIM in " ".join(line.removeprefix("//").strip() for line in head.splitlines())


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.parent.name)
def test_a_kernel_that_claims_to_use_the_packs_functions_uses_no_others(path: Path):
    text = path.read_text()
    if not is_pack_only(path):
        assert deviations(text, pack()), "nothing but the pack's functions: let its header say so"
        return
    assert deviations(text, pack()) == []
    assert {"mbar_init", "tma_load", "wgmma_ss"} <= {found.name for found in constructs(text)}


KERNEL = """
#include <cuda.h>
namespace {
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// The rank in use.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta"
               ".tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src), "r"(x), "r"(y) : "memory");
}
template <int kPending>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
constexpr int kSide = 64;
struct Tile {
  int row, column;
};
__global__ void __launch_bounds__(128, 1) store_kernel(const __grid_constant__ CUtensorMap map) {
  extern __shared__ uint8_t raw[];
  const Tile tile{kSide, kSide};
  tma_store(&map, smem_u32(raw), tile.column, tile.row);
  tma_wait<0>();
}
}  // namespace
"""


def test_a_kernel_of_the_packs_functions_departs_in_nothing():
    assert deviations(KERNEL, pack()) == []


def swap(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


@pytest.mark.parametrize(
    ("edit", "finding"),
    [
        (swap(' : "memory"', ""), "tma_store differs from the pack's"),
        (swap("[%0, {%2, %3}]", "[%0, {%3, %2}]"), "tma_store differs from the pack's"),
        (swap("int x, int y", "int y, int x"), "tma_store differs from the pack's"),
        (swap("template <int kPending>", "template <unsigned kPending>"), "tma_wait differs from the pack's"),
        (swap("tma_wait<0>()", 'asm volatile("" ::: "memory")'), "store_kernel holds assembly of its own"),
        (swap("tma_wait<0>();", "WAIT; tma_wait<0>();"), "store_kernel holds assembly of its own"),
        (swap("tma_wait<0>();", ""), "tma_wait is not used"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_departure_is_found(edit: Callable[[str], str], finding: str):
    macro = '#define WAIT asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")\n'
    assert finding in deviations(macro + edit(KERNEL), pack())


def test_every_function_of_the_pack_is_among_its_constructs():
    headers = [read_header(path) for path in open_pack(ROOT, "h100").headers()]
    assert {name for header in headers for name in header.functions} <= {found.name for found in pack()}
    assert sum(found.name == "wgmma_ss" for found in pack()) == 32
    assert sum(found.name == "tma_load" for found in pack()) == 5


def test_gemm_and_forward_are_the_proof_that_the_pack_suffices():
    proof = {"gemm_n7168_k5120", "mha_with_lse_d128", "mha_with_lse_d128_causal"}
    assert {path.parent.name for path in KERNELS if is_pack_only(path)} == proof
