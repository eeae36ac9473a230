"""What this machine can do, what each gap costs, and how to close it. Nothing is measured, nothing heavy imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ptxbench.cases import available_archs, load_arch
from ptxbench.doctor import device, host
from ptxbench.doctor.check import Check, Status

__all__ = ["Check", "Status", "examine", "render"]


def examine(root: Path) -> tuple[Check, ...]:
    """Every check on this machine, for the checkout ``root``. Raises InputError for a broken architecture file."""
    return tuple(_checks(root))


def _checks(root: Path) -> Iterator[Check]:
    yield host.check_python()
    yield from host.check_compilers()
    yield host.check_disassembler()
    yield host.check_tvm_ffi()
    yield host.check_build_cache()
    yield device.check_gpu([load_arch(root, name) for name in available_archs(root)])
    yield device.check_counter_permission()
    yield device.check_ncu()
    yield device.check_sanitizer()
    yield device.check_debugger()
    yield device.check_cupti()
    yield device.check_torch()
    yield from device.check_baselines()
    yield host.check_containment()
    yield host.check_model_keys()
    yield host.check_runs(root / "generated")


def render(checks: Sequence[Check]) -> list[str]:
    """One line per check; below a gap or an unknown, what it costs and how to close it."""
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    for check in checks:
        lines.append(f"{check.status.value:7}  {check.name:{width}}  {check.found}")
        if check.status is not Status.OK:
            lines.append(f"{'':7}  {'':{width}}  cost: {check.cost}")
            lines.append(f"{'':7}  {'':{width}}  to close: {check.remedy}")
    gaps = sum(check.status is Status.GAP for check in checks)
    unknowns = sum(check.status is Status.UNKNOWN for check in checks)
    return [*lines, f"{len(checks)} checks: {gaps} gaps, {unknowns} unknown"]
