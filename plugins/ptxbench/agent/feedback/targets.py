"""The architecture's own instructions: as SASS families, and by the PTX that compiles to them."""

from __future__ import annotations

from ptxbench.cases import Case

_PTX = {
    "*GMMA": "wgmma.mma_async",
    "UTMALDG": "cp.async.bulk.tensor loads",
    "UTMASTG": "cp.async.bulk.tensor stores",
    "UTMAREDG": "cp.reduce.async.bulk.tensor",
    "UTC*": "tcgen05.mma, .cp and .commit",
    "LDTM": "tcgen05.ld",
    "STTM": "tcgen05.st",
}
"""Seen in the output of nvcc 13.0 (the sources of arch.yaml say the same)."""


def target_families(case: Case) -> str:
    """``instructions of *GMMA (wgmma.mma_async), UTMALDG (...)``."""
    named = [f"{family} ({_PTX[family]})" if family in _PTX else family for family in case.arch.selected]
    return f"one of the SASS families {', '.join(named)}"


def present_families(turn_families: dict[str, int]) -> str:
    """``HGMMA 8, UTMALDG 2``."""
    return ", ".join(f"{family} {number:,}" for family, number in sorted(turn_families.items()))
