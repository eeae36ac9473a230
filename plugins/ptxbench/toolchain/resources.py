"""What ptxas says of each kernel (``-Xptxas -v``): registers, stack, spills, shared memory, barriers."""

from __future__ import annotations

import re

from ptxbench.records.build import KernelResources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SMEM = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def parse_resources(output: str) -> tuple[KernelResources, ...]:
    """Resources of each entry function, in the order of the report. Lines of another shape are passed over.

    The report of a kernel is ``Compiling entry function``, ``Function properties for`` it (and for functions that it
    calls, which are not kernels), its stack line, and ``Used N registers``.
    """
    kernels: list[KernelResources] = []
    entry, described, stack = "", "", (0, 0, 0)
    for line in output.splitlines():
        if match := _ENTRY.search(line):
            entry, described, stack = match[1], match[1], (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif (match := _STACK.search(line)) and described == entry:
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry:
            kernels.append(_resources(entry, stack, int(match[1]), match[2]))
            entry = ""
    return tuple(kernels)


def _resources(kernel: str, stack: tuple[int, int, int], registers: int, rest: str) -> KernelResources:
    barriers, smem = _BARRIERS.search(rest), _SMEM.search(rest)
    return KernelResources(
        kernel=kernel,
        registers=registers,
        stack_bytes=stack[0],
        spill_store_bytes=stack[1],
        spill_load_bytes=stack[2],
        static_smem_bytes=int(smem[1]) if smem else 0,
        barriers=int(barriers[1]) if barriers else 0,
    )
