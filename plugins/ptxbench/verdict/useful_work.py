"""How much of the workload the target's matrix instructions did: tells a kernel from a decoy beside one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod

from ptxbench.cases.case import Case
from ptxbench.records import InstructionCount, KernelLaunch

WARP_THREADS = 32
WARPS_PER_WARPGROUP = 4
EXIT = "EXIT"

_WGMMA_SHAPE = re.compile(r"\.(64)x(\d+)x(\d+)(?:\.|$)")


def useful_share(case: Case, counts: Sequence[InstructionCount], launches: Iterable[KernelLaunch] = ()) -> float | None:
    """Return FLOPs of the selected matrix instructions that one call executes over FLOPs of the workload.

    0.0 when none executed; None when one that executed has no countable shape, as on Blackwell, where the shape is in a
    descriptor. Above 1 when a kernel does more than the workload needs, for example whole blocks of a causal mask.
    ``launches`` are those of a timed call: a report that counts a kernel's threads more than once is of more than one.
    """
    total = 0.0
    times = counted_times(counts, launches)
    for count in counts:
        if not case.arch.is_matrix(count.opcode) or count.thread_inst_executed_true <= 0:
            continue
        flops = warp_flops(count.opcode)
        if flops is None:
            return None
        total += flops * count.thread_inst_executed_true / WARP_THREADS / times.get(count.kernel, 1.0)
    return total / case.flops if case.flops > 0 else None


def counted_times(counts: Iterable[InstructionCount], launches: Iterable[KernelLaunch]) -> dict[str, float]:
    """How often a report counts each thread of a call, by kernel: every thread that ends executes ``EXIT`` once.

    Nsight Compute 2025.3 counted each twice in 14 of the 18 stored evidences of several kernels a call, and once in
    all 51 of a single one; why is unknown. Less than once is taken for once, and a kernel without both numbers is left
    out.
    """
    ended: dict[str, int] = defaultdict(int)
    for count in counts:
        if count.opcode == EXIT:
            ended[count.kernel] += count.thread_inst_executed_true
    begun: dict[str, float] = defaultdict(float)
    for launch in launches:
        begun[launch.name] += prod((*launch.grid, *launch.block)) * launch.launches_per_call
    return {name: max(1.0, threads / begun[name]) for name, threads in ended.items() if begun[name] > 0}


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
