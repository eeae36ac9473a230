"""The code blocks of a pack's prose as one source, so that a compiler can say whether they are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ptxbench.packs.lint import FENCE
from ptxbench.packs.pack import PackFolder

UNUSED = r"#177-D|#550-D|was declared but never referenced|set but never used|-Wunused"
"""Warnings of examples that stop where their point is made."""

_FILE_SCOPE = re.compile(r"__global__|__device__|\binline\b|\bTVM_FFI_DLL_EXPORT")
_BODY = """
__global__ void {cluster}__launch_bounds__(128, 1)
    {name}([[maybe_unused]] const __grid_constant__ CUtensorMap map, [[maybe_unused]] uint32_t* out,
           [[maybe_unused]] void* global, [[maybe_unused]] int x) {{
  extern __shared__ __align__(1024) uint8_t raw_{name}[];
  [[maybe_unused]] uint8_t* const raw = raw_{name};
  [[maybe_unused]] const uint32_t smem = static_cast<uint32_t>(__cvta_generic_to_shared(raw)), bar = smem + 131072;
  [[maybe_unused]] uint32_t r = 0, before = 0;
  {{
{block}
  }}
  out[threadIdx.x] = r;
}}
"""


def code_blocks(pack: PackFolder) -> Iterator[tuple[Path, str]]:
    """Each ``cuda`` block of contracts, schedules and Markdown templates, with its file."""
    templates = (path for path in pack.paths("templates") if path.suffix == ".md")
    schedules = (path for paths in pack.schedule_paths().values() for path in paths)
    for path in dict.fromkeys((*templates, *pack.paths("contracts"), *schedules)):
        for tag, block in FENCE.findall(path.read_text(encoding="utf-8")):
            if tag == "cuda":
                yield path, block


def as_source(pack: PackFolder) -> str:
    """All blocks, each in a namespace of its own, file scope or the body of a kernel."""
    parts = []
    for number, (path, block) in enumerate(code_blocks(pack)):
        name = f"block_{number}"
        whole = block if _FILE_SCOPE.search(block) else _BODY.format(name=name, block=block, cluster="")
        parts.append(f"// {path.name}\nnamespace scope_{number} {{\n{whole}\n}}\n")
    return "\n".join(parts)
