"""Device code as text, and what it means when the disassembler fails on it."""

from __future__ import annotations

import re
from typing import NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain import faults
from ptxbench.toolchain.discovery import Disassembler
from ptxbench.toolchain.process import StepResult
from ptxbench.toolchain.sass import function_names
from ptxbench.toolchain.steps import StepError, Steps

_PTX_HEAD = re.compile(r"^\.(?:version|target|address_size)\b.*$", re.MULTILINE)
_PLAIN_KERNEL = ".visible .entry plain() { ret; }\n"


class Disassembly(NamedTuple):
    """``text`` is None where there is nothing to read, no tool, or a tool that failed, of which ``note`` tells."""

    text: str | None = None
    note: str = ""


def disassemble(steps: Steps, tool: Disassembler | None) -> Disassembly:
    """Disassembles what ptxas wrote.

    Raises StepError when the build's time is over, and InfrastructureError for a disassembler that cannot read a plain
    kernel either. What it fails on otherwise is the source's doing, which leaves the instructions unknown.
    """
    cubin = steps.product("assemble")
    if tool is None or not function_names(cubin.read_bytes()):
        return Disassembly()
    result = steps.attempt("disassemble", (str(tool.path), "-c", cubin.name), whole=True)
    if result.ok:
        return Disassembly(result.output)
    if steps.session.timed_out_tool is not None:
        raise StepError("disassemble", result)
    faults.raise_if_infrastructure(result, steps.folder)
    _check_on_plain_kernel(steps, tool)
    return Disassembly(note=f"{_why(result)}: the instructions of this build are unknown\n")


def _check_on_plain_kernel(steps: Steps, tool: Disassembler) -> None:
    head = "\n".join(_PTX_HEAD.findall(steps.product("device_front").read_text("utf-8", "replace"))[:3])
    (steps.folder / "plain.ptx").write_text(f"{head}\n{_PLAIN_KERNEL}")
    assembler, arch = steps.command("assemble")[0], steps.plan.device_arch
    for command in (
        (assembler, f"-arch={arch}", "-m64", "plain.ptx", "-o", "plain.cubin"),
        (str(tool.path), "-c", "plain.cubin"),
    ):
        result = steps.session.run(command)
        if not result.ok:
            if steps.session.timed_out_tool is not None:
                raise StepError("disassemble", result)
            raise InfrastructureError(
                "compiler_crashed",
                f"expected nvdisasm {tool.version} to read what ptxas writes for {arch}; "
                f"{result.tool} fails on a plain kernel: {result.output.strip()[:300] or result.returncode}. "
                "Install an nvdisasm as new as the compiler.",
            )


def _why(result: StepResult) -> str:
    limit, crash = faults.limit_note(result), faults.crash(result)
    if limit is not None:
        return limit
    if crash is not None:
        return f"{result.tool} crashed ({crash}), twice"
    said = result.output.strip().rpartition("\n")[2][:200]
    return f"{result.tool} failed with code {result.returncode} ({said})"
