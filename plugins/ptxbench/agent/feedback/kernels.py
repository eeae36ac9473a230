"""The kernels of an object: registers, spills, shared memory, what they could launch with."""

from __future__ import annotations

from ptxbench.agent.feedback.occupancy import SmLimits, largest_block, sm_limits
from ptxbench.agent.feedback.parts import Turn
from ptxbench.agent.feedback.targets import present_families
from ptxbench.agent.feedback.wording import short_name
from ptxbench.records import KernelResources

SHOWN_KERNELS = 6


def resources_of(turn: Turn) -> dict[str, KernelResources]:
    """ptxas's report by mangled name."""
    return {resources.kernel: resources for resources in turn.build.resources}


def spills(resources: KernelResources) -> str:
    """``, spills 64 bytes`` per thread; empty for none."""
    spilled = max(resources.spill_store_bytes, resources.spill_load_bytes)
    stack = f", stack {resources.stack_bytes} bytes" if resources.stack_bytes else ""
    return (f", spills {spilled} bytes" if spilled else ", no spills") + stack


def static_kernels(turn: Turn) -> tuple[str, ...]:
    """One fact with the kernels of the object and what ptxas gave them."""
    rows = [
        f"  {short_name(kernel.kernel)}: {kernel.registers} registers{spills(kernel)}, "
        f"{kernel.static_smem_bytes:,} bytes of static shared memory"
        for kernel in turn.build.resources[:SHOWN_KERNELS]
    ]
    return ("Kernels of the object, per thread and block:\n" + "\n".join(rows),) if rows else ()


def launch_limits(turn: Turn) -> tuple[str, ...]:
    """One fact: the largest block that each kernel can be launched with."""
    limits = sm_limits(turn.case.arch.compute_capability)
    if limits is None or not turn.build.resources:
        return static_kernels(turn)
    rows = [_limit(kernel, limits) for kernel in turn.build.resources[:SHOWN_KERNELS]]
    return ("What the kernels of the object can be launched with:\n" + "\n".join(rows),)


def _limit(kernel: KernelResources, limits: SmLimits) -> str:
    dynamic = limits.block_smem_bytes - kernel.static_smem_bytes
    return (
        f"  {short_name(kernel.kernel)}: {kernel.registers} registers, so at most "
        f"{largest_block(kernel.registers, limits)} threads per block; "
        f"at most {dynamic:,} bytes of dynamic shared memory"
    )


def static_families(turn: Turn) -> str:
    """Selected opcode families in the object with their lines of SASS; empty for none."""
    return present_families(turn.verdict.families)
