"""How much of the workload the target's matrix instructions did: tells a kernel from a decoy beside one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptxbench.cases.case import Case
from ptxbench.records import InstructionCount

WARP_THREADS = 32
WARPS_PER_WARPGROUP = 4

_WGMMA_SHAPE = re.compile(r"\.(64)x(\d+)x(\d+)(?:\.|$)")


def useful_share(case: Case, counts: Iterable[InstructionCount]) -> float | None:
    """Return FLOPs of the executed selected matrix instructions, of one call, over FLOPs of the workload.

    0.0 when none executed; None when one that executed has no countable shape, as on Blackwell, where the shape is in a
    descriptor. Above 1 when a kernel does more than the workload needs, for example whole blocks of a causal mask.
    """
    total = 0.0
    for count in counts:
        if not case.arch.is_matrix(count.opcode) or count.thread_inst_executed_true <= 0:
            continue
        flops = warp_flops(count.opcode)
        if flops is None:
            return None
        total += flops * count.thread_inst_executed_true / WARP_THREADS
    return total / case.flops if case.flops > 0 else None


def warp_flops(opcode: str) -> float | None:
    """Return FLOPs per warp-level execution of a wgmma opcode, for example ``HGMMA.64x256x16.F32.BF16``.

    The instruction is M x N x K over a warpgroup; each of its 4 warps executes and counts it. None for another opcode
    and for sparse ones, which skip half the products.
    """
    shape = _WGMMA_SHAPE.search(opcode)
    if shape is None or not opcode.split(".", 1)[0].endswith("GMMA") or ".SP" in opcode:
        return None
    m, n, k = (int(extent) for extent in shape.groups())
    return 2 * m * n * k / WARPS_PER_WARPGROUP
