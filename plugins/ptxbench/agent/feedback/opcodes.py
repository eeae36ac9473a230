"""SASS opcodes by what they do, and which of them an object holds (nvdisasm 13, sm_90a and sm_100a)."""

from __future__ import annotations

from ptxbench.agent.feedback.parts import Turn

SYNCHRONIZING = {
    "mbarrier operations": ("SYNCS",),
    "TMA loads": ("UTMALDG", "UBLKCP"),
    "block barriers": ("BAR",),
    "cluster barriers": ("UCGABAR_ARV", "UCGABAR_WAIT"),
    "setmaxnreg": ("USETMAXREG",),
    "wgmma": ("HGMMA", "QGMMA", "IGMMA", "BGMMA"),
    "tcgen05": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCBAR"),
    "global atomics": ("ATOM", "ATOMG", "RED", "REDG"),
    "sleeps": ("NANOSLEEP",),
}
"""What other threads or units wait for, or signal."""
_KINDS = SYNCHRONIZING | {"TMA stores": ("UTMASTG", "UTMAREDG")}


def opcodes_of(turn: Turn) -> set[str]:
    """All opcodes of the object."""
    return {opcode for cubin in turn.build.cubins for kernel in cubin.kernels for opcode in kernel.opcodes}


def holds(turn: Turn, kind: str) -> bool:
    """Whether the object has an opcode of a kind."""
    return not opcodes_of(turn).isdisjoint(_KINDS[kind])
