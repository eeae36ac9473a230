"""Nsight Compute's arguments and its source page as CSV (Nsight Compute CLI documentation, "Command line options")."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ptxbench.records import InstructionCount
from ptxbench.records.base import MOST_COUNT

METRICS = ("inst_executed", "thread_inst_executed_true")
MAX_REASON_CHARS = 400
MAX_DIGITS = 16
"""Of a count: as many as ``MOST_COUNT`` has."""


class ReportError(Exception):
    """The report cannot be read; ``str()`` quotes the tool."""


class Row(NamedTuple):
    """One SASS line of one kernel launch."""

    kernel: str
    opcode: str
    inst_executed: int
    thread_inst_executed_true: int
    part: int
    """Of the report: from 1, one for each launch."""


def arguments(report: Path) -> list[str]:
    """The tool's command line before the program. The device's clocks stay as they are."""
    return [
        "--clock-control",
        "none",
        "--metrics",
        ",".join(METRICS),
        "--page",
        "source",
        "--print-source",
        "sass",
        "--print-kernel-base",
        "mangled",
        "--csv",
        "--log-file",
        str(report),
    ]


def opcode_of(sass: str) -> str:
    """``HGMMA.64x64x16.F32.BF16`` of ``@!P0 HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], ...``."""
    words = sass.split()
    while words and words[0].startswith("@"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""


def _number(text: str) -> int:
    digits = text.strip().replace(",", "")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > MAX_DIGITS:
        raise ReportError(f"expected a count in the report, found {text[:40]!r}")
    return int(digits)


def rows(report: str) -> Iterator[Row]:
    """Every SASS line of every kernel in the report. Raises ReportError for a line whose counts are no numbers."""
    kernel, part = "", 0
    columns: dict[str, int] | None = None
    lines = [line for line in report.splitlines() if not line.startswith("==")]
    for cells in _cells(lines):
        if not cells:
            continue
        if cells[0] == "Kernel Name" and len(cells) >= 2:
            kernel, columns, part = cells[1].strip(), None, part + 1
        elif {"Source", *METRICS} <= set(cells):
            columns = {name: position for position, name in enumerate(cells)}
        elif columns is not None and len(cells) == len(columns):
            opcode = opcode_of(cells[columns["Source"]])
            if opcode:
                executed, threads = (_number(cells[columns[metric]]) for metric in METRICS)
                yield Row(kernel, opcode, executed, threads, part)


def _cells(lines: list[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO("\n".join(lines)))
    except csv.Error as error:
        raise ReportError(f"the report is not CSV: {error}") from error


def parse(report: str) -> tuple[InstructionCount, ...]:
    """Counts per (kernel, opcode), sorted; opcodes that never ran are kept with zeros. Raises ReportError."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows(report):
        executed, threads = sums.get((row.kernel, row.opcode), (0, 0))
        sums[row.kernel, row.opcode] = (executed + row.inst_executed, threads + row.thread_inst_executed_true)
    if any(max(counts) > MOST_COUNT for counts in sums.values()):
        raise ReportError(f"the report counts more than {MOST_COUNT} executions of one opcode")
    return tuple(
        InstructionCount(kernel=kernel, opcode=opcode, inst_executed=counts[0], thread_inst_executed_true=counts[1])
        for (kernel, opcode), counts in sorted(sums.items())
    )


def kernels(report: str) -> dict[str, int]:
    """How many parts of the report each kernel has, one for each launch that was counted, in order of appearance."""
    parts: dict[str, int] = {}
    for part in dict.fromkeys((row.part, row.kernel) for row in rows(report)):
        parts[part[1]] = parts.get(part[1], 0) + 1
    return parts


def reason(report: str) -> str:
    """Why there are no counts, in the tool's words, with advice for the usual cause."""
    said = [line.removeprefix("==ERROR==").strip() for line in report.splitlines() if line.startswith("==ERROR==")]
    text = " ".join(said)[:MAX_REASON_CHARS]
    if "ERR_NVGPUCTRPERM" in report:
        text += (
            " The driver reserves performance counters for administrators: run as root or load the nvidia module "
            "with NVreg_RestrictProfilingToAdminUsers=0."
        )
    return text
