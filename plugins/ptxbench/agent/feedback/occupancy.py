"""How many blocks of a kernel one SM holds at a time, and what bounds them.

Limits: CUDA C++ Programming Guide, "Compute Capabilities", technical specifications per compute capability. The units
in which registers and shared memory are given out: CUDA Occupancy Calculator (Nsight Compute).
"""

from __future__ import annotations

from typing import NamedTuple

WARP_THREADS = 32


class SmLimits(NamedTuple):
    """What one SM has and one block may have."""

    threads: int
    blocks: int
    registers: int
    smem_bytes: int
    block_smem_bytes: int
    reserved_smem_bytes: int = 1024
    """Taken by the system for each block."""
    smem_unit: int = 128
    register_unit: int = 256
    """Registers are given out to a warp in this unit."""
    partitions: int = 4
    """A warp's registers are in one of the SM's partitions."""
    block_threads: int = 1024


_LIMITS = {
    (9, 0): SmLimits(2048, 32, 65_536, 233_472, 232_448),
    (10, 0): SmLimits(2048, 32, 65_536, 233_472, 232_448),
}


class Occupancy(NamedTuple):
    """Resident blocks per SM, the share of its warps that they are, and what allows no more."""

    blocks: int
    warps: int
    share: float
    bound_by: str


def sm_limits(compute_capability: tuple[int, int]) -> SmLimits | None:
    """The limits of an architecture; None for one that is not known."""
    return _LIMITS.get(compute_capability)


def occupancy(threads: int, registers: int, smem_bytes: int, limits: SmLimits) -> Occupancy:
    """Occupancy of blocks with ``threads``, ``registers`` per thread, ``smem_bytes`` static and dynamic together.

    Clusters, which may leave SMs empty, are not considered. Zero blocks: it cannot be launched.
    """
    warps = -(-threads // WARP_THREADS)
    bounds = {
        "threads": limits.threads // (warps * WARP_THREADS),
        "the number of blocks": limits.blocks,
        "registers": _warps_by_registers(registers, limits) // warps,
        "shared memory": limits.smem_bytes // _smem_of_block(smem_bytes, limits),
    }
    if threads > limits.block_threads or smem_bytes > limits.block_smem_bytes:
        bounds["threads" if threads > limits.block_threads else "shared memory"] = 0
    blocks = min(bounds.values())
    bound_by = " and ".join(name for name, bound in bounds.items() if bound == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps * WARP_THREADS / limits.threads, bound_by)


def largest_block(registers: int, limits: SmLimits) -> int:
    """Threads of the largest block whose registers an SM has."""
    return min(limits.block_threads, _warps_by_registers(registers, limits) * WARP_THREADS)


def _warps_by_registers(registers: int, limits: SmLimits) -> int:
    of_warp = _up(max(registers, 1) * WARP_THREADS, limits.register_unit)
    return limits.registers // limits.partitions // of_warp * limits.partitions


def _smem_of_block(smem_bytes: int, limits: SmLimits) -> int:
    return _up(smem_bytes + limits.reserved_smem_bytes, limits.smem_unit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
